"""profile: says where the time and the memory of a training step go, and tries what may help."""

import os
import sys
from typing import TYPE_CHECKING, Literal

from playbook.command.reports import print_json
from playbook.command.verb import ModelVerb

if TYPE_CHECKING:
    from playbook.command.arguments import Invocation
    from playbook.command.session import Session


class Profile(ModelVerb):
    """Runs a few dozen training steps on a copy of the model, then the same with each remedy in a process of its own.

    `profile.html` shows what bounds the training, the operators by module and line of code, the memory over a step
    and the remedies; `trace.json.gz` opens in Perfetto. One device, as several are timed by `fit` itself.
    """

    name = "profile"
    summary = "Show where a training step spends time and memory, and which remedies help."
    examples = ("--config configs/vision/cnn-digits.yaml", "--config configs/vision/cnn-digits.yaml --only data")
    checkpoint = "optional"
    reports = True

    def prepare(self, invocation: "Invocation") -> None:
        os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # the tracer tells of its own steps, and of GPUs that it misses

    def before_build(self, session: "Session") -> None:
        if session.options.trainer.profiler is not None:
            print("--trainer.profiler: left out, as profile measures with its own", file=sys.stderr)
            session.options.trainer.profiler = None

    def run(
        self,
        session: "Session",
        steps: int = 30,
        only: Literal["data", "steps"] | None = None,
        remedies: bool = True,
        format: Literal["terminal", "json"] = "terminal",
    ) -> int:
        """Profiles the training, and writes profile.html, profile.json and trace.json.gz to the run directory.

        Args:
            session: the model, its data and the trainer.
            steps: training steps to time; more if they take less than 3 s, fewer if they take more than 20 s.
            only: data measures the stages of loading alone; steps times the steps alone, and writes no file.
            remedies: try changes that may help, each in a process of its own.
            format: of what is printed: terminal, or json for programs.

        Returns:
            The exit code.
        """
        from playbook.insight.profile import runner
        from playbook.training.initial import load_weights

        if session.checkpoint is not None:
            load_weights(session.model, session.checkpoint)
        runner.require_suitable(session, steps)
        report = {None: runner.whole, "data": runner.data, "steps": runner.steps_alone}[only]
        code, values = report(session, steps, remedies)
        if format == "json":
            print_json(values)
        return code


VERB = Profile()
ORDER = 7
