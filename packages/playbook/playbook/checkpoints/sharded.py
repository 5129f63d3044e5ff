"""Training on a mesh of devices, with atomic checkpoints that can be loaded on any number of devices."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Literal

from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.strategies import ModelParallelStrategy
from lightning.pytorch.utilities.model_helpers import is_overridden
from lightning_utilities.core.apply_func import apply_to_collection
from torch.distributed.checkpoint import CheckpointException, DefaultSavePlanner, save
from torch.distributed.checkpoint._nested_dict import unflatten_state_dict  # private, as are the names that it gives
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
)
from torch.distributed.tensor import DTensor

from playbook.checkpoints import folders
from playbook.checkpoints.files import replace, write_archive
from playbook.checkpoints.io import damage, describe, load, misfits, require_readable, weights_of
from playbook.checkpoints.plain import pack_hyperparameters
from playbook.checkpoints.reshard import InMemory, Stored, fill, first_failure, tensors_of
from playbook.checkpoints.single import understood
from playbook.errors import UserError
from playbook.parallel import reshard, run_step, spread_module
from playbook.processes import gathered
from playbook.runs.directory import remove
from playbook.training.lightning.settings import set_data_parallel_size


class ShardedStrategy(ModelParallelStrategy):
    """FSDP2 and tensor parallelism: parameters, gradients and optimizer states are split over devices.

    Networks are sharded by their blocks, and their layers are split as a dict on their class says (parallel.py). A
    module whose `configure_model` splits it, over `self.device_mesh["data_parallel"]` and `["tensor_parallel"]`, is
    left as it is.

    Processes communicate by nccl on GPUs and by gloo on CPUs. A checkpoint is a folder (folders.py) that replaces the
    previous one in a single rename, after it was written and verified. Training can resume from it on any number of
    devices, in any split, and with any other strategy, and this strategy can resume from their checkpoints.

    Args:
        data_parallel_size: number of shares of the batch and of the parameters; auto uses all devices that
            tensor_parallel_size leaves.
        tensor_parallel_size: number of devices that compute each layer together, on the same samples.
        timeout_minutes: minutes that a process waits for another before it fails.

    Raises:
        ValueError: the product of the sizes is not the number of devices.
    """

    def __init__(
        self,
        data_parallel_size: int | Literal["auto"] = "auto",
        tensor_parallel_size: int = 1,
        timeout_minutes: float = 30.0,
    ) -> None:
        for name, size in (("data_parallel_size", data_parallel_size), ("tensor_parallel_size", tensor_parallel_size)):
            if size != "auto" and int(size) < 1:
                raise ValueError(f"{name}: expected at least 1, got {size}")
        if timeout_minutes <= 0:
            raise ValueError(f"timeout_minutes: expected more than 0, got {timeout_minutes}")
        super().__init__(data_parallel_size, tensor_parallel_size, timeout=timedelta(minutes=timeout_minutes))
        self.data_parallel_size = data_parallel_size
        self.tensor_parallel_size = tensor_parallel_size
        self._loads = False

    def setup_environment(self) -> None:
        devices, tensor = self.num_nodes * self.num_processes, int(self.tensor_parallel_size)
        data = devices // tensor if self.data_parallel_size == "auto" else int(self.data_parallel_size)
        if data * tensor != devices:
            raise ValueError(
                f"data_parallel_size: expected data_parallel_size x tensor_parallel_size = {devices} devices, "
                f"got {data} x {tensor}; see --trainer.devices, or use another --trainer.strategy"
            )
        self.data_parallel_size = data
        set_data_parallel_size(self, data)
        super().setup_environment()

    def setup(self, trainer: Trainer) -> None:
        model = self.lightning_module
        assert model is not None
        reshard(model)  # Lightning sets up again for the test after the training
        is_split = any(isinstance(value, DTensor) for value in model.parameters())
        if not is_split:
            spread_module(model, self.device_mesh)
        if self.data_parallel_size != 1:  # gradients of whole parameters would differ, and stay as they are
            trained = ((name, value) for name, value in model.named_parameters() if value.requires_grad)
            whole = [name for name, value in trained if not isinstance(value, DTensor)]
            if whole:
                raise ValueError(
                    f"strategy: {len(whole)} parameters are not split in configure_model, expected to split all: "
                    f"{', '.join(whole[:4])}"
                )
        # FSDP2 keeps the tensors that it gathers into, and training cannot write to those of inference mode
        for loop in (
            trainer.fit_loop.epoch_loop.val_loop,
            trainer.validate_loop,
            trainer.test_loop,
            trainer.predict_loop,
        ):
            loop.inference_mode = False
        with _split_already(model):
            super().setup(trainer)

    def training_step(self, *args: Any, **kwargs: Any) -> Any:
        return self._run(partial(super().training_step, *args, **kwargs))

    def validation_step(self, *args: Any, **kwargs: Any) -> Any:
        return self._run(partial(super().validation_step, *args, **kwargs))

    def test_step(self, *args: Any, **kwargs: Any) -> Any:
        return self._run(partial(super().test_step, *args, **kwargs))

    def predict_step(self, *args: Any, **kwargs: Any) -> Any:
        return self._run(partial(super().predict_step, *args, **kwargs))

    def _run(self, step: Callable[[], Any]) -> Any:
        assert self.lightning_module is not None
        return run_step(self.lightning_module, step)

    def save_checkpoint(self, checkpoint: dict[str, Any], filepath: str | Path, storage_options: Any = None) -> None:
        path = Path(self.broadcast(filepath))
        beside = self.broadcast(path.with_name(f".{path.name}.{os.getpid()}"))
        shards = {"state_dict": checkpoint.pop("state_dict")}
        shards |= {f"optimizer_{i}": state for i, state in enumerate(checkpoint.pop("optimizer_states", []))}
        pack_hyperparameters(checkpoint)
        # a callback may keep tensors like the parameters
        rest = apply_to_collection(checkpoint, DTensor, lambda tensor: tensor.full_tensor().cpu())
        try:
            self._on_first(lambda: self._make_room(path, beside))
            entries = self._write(shards, beside)
            self._on_first(lambda: self._finish(rest, entries, beside, path))
        except BaseException:  # a signal too leaves nothing half written
            if self.global_rank == 0:
                remove(beside)
            raise

    def _make_room(self, path: Path, beside: Path) -> None:
        for leftover in path.parent.glob(f".{path.name}.[0-9]*"):  # of a process that was killed while it wrote
            remove(leftover)
        beside.mkdir(parents=True)

    def _write(self, shards: dict[str, Any], folder: Path) -> dict[str, dict[str, Any]]:
        """Writes what this process has; returns the checksums of all processes' files."""
        writer, failure, entries = folders.Writer(folder), None, {}
        try:
            # what all processes have, the first one writes: buffers may differ, and belong together
            save(shards, storage_writer=writer, planner=DefaultSavePlanner(dedup_save_to_lowest_rank=True))
            entries = writer.checksums()
        except CheckpointException as error:
            failure = first_failure(error)
        except OSError as error:
            failure = error
        outcomes = gathered(self, (entries, failure))
        for _, failure in outcomes:
            if failure is not None:
                raise failure
        return {name: entry for entries, _ in outcomes for name, entry in entries.items()}

    def _finish(self, rest: dict[str, Any], entries: dict[str, dict[str, Any]], beside: Path, path: Path) -> None:
        file = beside / folders.REST
        write_archive(rest, file)
        require_readable(file, loads=self._loads)
        self._loads = True
        folders.close_folder(beside, {**entries, file.name: folders.entry_of(file)})
        replace(beside, path)

    def _on_first(self, act: Callable[[], None]) -> None:
        """Lets the first process act; if that fails, it fails on all processes."""
        failure: Exception | None = None
        if self.global_rank == 0:
            try:
                act()
            except Exception as error:  # raised below, by all
                failure = error
        is_plain = failure is None or isinstance(failure, OSError | UserError)  # others may not survive the way
        failure_of_first = self.broadcast(failure if is_plain else RuntimeError(repr(failure)))
        if failure_of_first is not None:
            raise failure or failure_of_first

    def load_checkpoint(self, checkpoint_path: str | Path, weights_only: bool | None = None) -> dict[str, Any]:
        path = Path(self.broadcast(checkpoint_path))
        self._on_first(lambda: _require_whole(path))  # the others need not read all of it
        is_folder = path.is_dir()
        rest = load(path / folders.REST) if is_folder else load(path)
        weights = {} if is_folder else weights_of({"state_dict": rest.pop("state_dict", None)}, path)
        states = {} if is_folder else dict(enumerate(rest.pop("optimizer_states", [])))
        shards = folders.Shards(path) if is_folder else None
        assert self.lightning_module is not None
        self._load_weights(shards or InMemory({"state_dict": weights}), path)
        for index, optimizer in enumerate(self.optimizers):
            own = get_optimizer_state_dict(self.lightning_module, optimizer)
            stored = shards or InMemory({f"optimizer_{index}": _by_name(states.get(index, {}), own)})
            self._load_optimizer(stored, path, index, own)
        return rest

    def _load_weights(self, stored: Stored, path: Path) -> None:
        model = self.lightning_module
        assert model is not None
        own = {"state_dict": get_model_state_dict(model)}
        names = [name for name in stored.entries if name.startswith("state_dict.")]
        with understood(path):
            saved = {name.removeprefix("state_dict."): stored.value(name, names_only=True) for name in names}
        differences = misfits(tensors_of(own["state_dict"]), tensors_of(saved))
        if not model.strict_loading:
            differences = {"mismatched": differences["mismatched"]}
        if text := describe(differences):
            raise UserError(f"--ckpt_path {path.as_posix()}: does not fit this model: {text}")
        values, paths = fill(own, stored, path)
        weights = unflatten_state_dict(values, paths)["state_dict"]
        set_model_state_dict(model, weights, options=StateDictOptions(strict=False))

    def _load_optimizer(self, stored: Stored, path: Path, index: int, own: dict[str, Any]) -> None:
        name = f"optimizer_{index}"
        values, paths = fill({name: own}, stored, path)
        groups = [f"{name}.param_groups.{i}.params" for i in range(len(own["param_groups"]) + 1)]
        is_same = [values.get(group) for group in groups[:-1]] == [group["params"] for group in own["param_groups"]]
        extra = [entry for entry in stored.entries if entry.startswith(f"{name}.state.") and entry not in values]
        if not is_same or groups[-1] in stored.entries or extra:
            raise UserError(
                f"--ckpt_path {path.as_posix()}: its optimizer does not fit this one; "
                "--init_from loads only the weights"
            )
        state = unflatten_state_dict(values, paths)[name]
        self.optimizers[index].load_state_dict(folders.by_position(state))


@contextmanager
def _split_already(model: LightningModule) -> Iterator[None]:
    """Has Lightning accept a module without `configure_model`, as it expects the module to split itself there."""
    if is_overridden("configure_model", model):
        yield
        return
    vars(model)["configure_model"] = lambda: None
    try:
        yield
    finally:
        del vars(model)["configure_model"]


def _by_name(state: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    """The opposite of folders.by_position: parameters of an optimizer by their names in this model."""
    names = [name for group in own["param_groups"] for name in group["params"]]
    groups = state.get("param_groups", [])
    if [len(group["params"]) for group in groups] != [len(group["params"]) for group in own["param_groups"]]:
        return {"param_groups": []}  # does not fit; the comparison raises
    return {
        "state": {names[place]: value for place, value in state["state"].items()},
        "param_groups": [{**group, "params": [names[place] for place in group["params"]]} for group in groups],
    }


def _require_whole(path: Path) -> None:
    if fault := damage(path):
        raise UserError(f"{path.as_posix()}: {fault}")
