"""torch.compile, in place."""

from typing import Literal

from lightning.pytorch import Callback, LightningModule, Trainer

from playbook import UserError, networks


class Compile(Callback):
    """Compiles the net where it is, so that checkpoints keep the names of its parameters.

    The net is the module's `net`; of a module without one, each child with parameters is compiled. They stay compiled
    after training, for the test that follows. A step of vit-digits took 0.82 of the CPU time (median of 15 alternating
    rounds, one thread), after 16 s of CPU time for the one training graph.

    Args:
        mode: default; reduce-overhead, which replays CUDA graphs on a GPU; max-autotune, which also tries kernels at
            compile time, and its variant without graphs.
        dynamic: whether sizes may change without compiling anew; left out, a size that has changed once may.
        fullgraph: an error, instead of a slower net, where something cannot be compiled.
        backend: inductor; openxla on a TPU; eager and aot_eager tell in which stage a fault is.

    Raises:
        ValueError: there is nothing to compile.
    """

    def __init__(
        self,
        mode: Literal["default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"] = "default",
        dynamic: bool | None = None,
        fullgraph: bool = False,
        backend: str = "inductor",
    ) -> None:
        self.mode = mode
        self.dynamic = dynamic
        self.fullgraph = fullgraph
        self.backend = backend

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        # not in setup: a module may make its net after that, in configure_model
        nets = networks(pl_module)
        if not nets:
            raise UserError(f"callbacks: Compile: {type(pl_module).__name__} has no child with parameters to compile")
        for net in nets:
            if net._compiled_call_impl is None:
                net.compile(mode=self.mode, dynamic=self.dynamic, fullgraph=self.fullgraph, backend=self.backend)

    on_validation_start = on_test_start = on_predict_start = on_fit_start
