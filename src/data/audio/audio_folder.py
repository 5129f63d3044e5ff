"""Recordings with labels, in folders or tables."""

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from playbook import AudioHeader, Data, UserError, audio_windows, files_below, nearest, split_indices
from src.data.audio.clips import Clip, Clips, Inputs, Part, as_inputs, collate
from src.data.audio.distortions import Distortions
from src.data.audio.listing import Problem, clips_in_folders, clips_in_table, sorted_labels
from src.data.audio.recordings import SUFFIXES, inspect_recording, read_recording
from src.data.notices import refuse, warn
from src.data.split_files import SPLITS, is_single, split_files
from src.ops.mel import LogMel

WHITE = "white"
NUM_MELS = 64  # rows of a picture
MOST_SECONDS = 10.0  # of the parts that long recordings are cut into, if the option is not set


class AudioFolder(Data):
    """Recordings in root/LABEL/…, in root/train/LABEL/… and root/test/LABEL/…, or in tables of files and labels.

    A table (CSV, TSV, JSON lines, Parquet) has a row for each file and label, or each part of a file and label, with
    its start and end in seconds; root is the table, or a folder with train.csv and, optionally, val.csv and test.csv.
    Without a folder or table val (or valid, validation, dev), validation is taken from train; a single folder or table
    is divided into all three splits. Parts of one file stay in one split. A clip in several rows, or with several
    labels in a field, has several labels: its target is then whether it has each of them, for the task
    MultilabelClassification.

    Channels are averaged, and all recordings are resampled to one rate. They may have different lengths: batches are
    padded, and `length` tells nets where the padding begins. Evaluation takes the middle of clips that are longer than
    `seconds`, training a random part; `predict --input` divides longer files into overlapping windows, each with its
    own row, `start` and `end`.

    Args:
        root: folder or table.
        sample_rate: samples per second that recordings are resampled to. Defaults to the most common rate of the
            training recordings.
        seconds: length of the longest clip that a net gets. Defaults to that of the longest training clip, at most 10.
        overlap: share of a window that the next one repeats, for files longer than `seconds` of `predict --input`, in
            [0, 1).
        file_column: name of the column of a table with the path, relative to the table. Defaults to the first existing
            one of file, path, filename, file_name, audio and recording.
        label_column: name of the column with the label. Defaults to the first existing one of label, class, category
            and target.
        start_column: name of the column with the start in seconds. Defaults to start, begin or onset, if it exists.
        end_column: name of the column with the end in seconds. Defaults to end, stop or offset, if it exists.
        label_separator: what separates several labels in a field, such as ";". Defaults to one label a field.
        multilabel: whether targets are several labels (B, K). Defaults to whether a training clip has more than one.
        shift: largest shift in time of training clips, as a share of their length, in [0, 1].
        gain: largest change of the loudness of training clips in dB, at least 0.
        noise: what is added to training clips: white, or a folder of recordings of noise. Defaults to nothing.
        snr: lowest and highest ratio of signal to that noise in dB.
        batch_size: clips per batch and process, B, at least 1.
        num_workers: loader processes; 0 loads in the main process.
        val_share: share of the training files used for validation, chosen with a fixed seed, in (0, 1).
        test_share: share of the files of a single folder or table used for testing, in [0, 1).
        on_error: what happens with recordings and rows that cannot be used: `stop` ends the run, `skip` leaves them out
            and counts them (`skipped_samples` in metrics.json).
        timeout_s: seconds without a batch after which a worker counts as hanging; 0 waits forever.
        balanced: whether to sample every class equally often. The number of samples in an epoch stays the same: those
            of rare classes are repeated, each time distorted anew.
        bucket: number of training batches whose clips are sorted by length together, to put clips of similar length
            into a batch and reduce padding; the batches are then shuffled. 0 turns it off.
        check_files: whether to load every clip once before training, to count those that cannot be loaded, are silent
            or clipped.

    Shapes:
        audio (B, T), zero behind shorter clips; length (B,) in samples; target (B,), 0 to K - 1, or with several labels
        (B, K), 0 or 1.

    Raises:
        ValueError: a value is out of range.
        UserError: there are no recordings, a label has none, one cannot be read or is truncated, or val or test has a
            label that train lacks.
    """

    formats = SUFFIXES
    collate = staticmethod(collate)
    is_single = (
        False  # whether `find_clips` found no test split, so that the clips of `train` are divided into all three
    )

    def __init__(
        self,
        root: str,
        sample_rate: int | None = None,
        seconds: float | None = None,
        overlap: float = 0.5,
        file_column: str | None = None,
        label_column: str | None = None,
        start_column: str | None = None,
        end_column: str | None = None,
        label_separator: str | None = None,
        multilabel: bool | None = None,
        shift: float = 0.1,
        gain: float = 6.0,
        noise: str | None = None,
        snr: Sequence[float] = (10.0, 40.0),
        batch_size: int = 32,
        num_workers: int = 0,
        val_share: float = 0.1,
        test_share: float = 0.1,
        on_error: Literal["stop", "skip"] = "stop",
        timeout_s: float = 600.0,
        balanced: bool = False,
        bucket: int = 10,
        check_files: bool = False,
    ) -> None:
        super().__init__(batch_size, num_workers, on_error, timeout_s, balanced, bucket, check_files)
        if sample_rate is not None and sample_rate < 1:
            raise ValueError(f"sample_rate: expected at least 1 sample per second, got {sample_rate}")
        if seconds is not None and not seconds > 0:
            raise ValueError(f"seconds: expected more than 0, got {seconds}")
        if not 0 <= overlap < 1:
            raise ValueError(f"overlap: expected a share in [0, 1), got {overlap}")
        if not 0 <= shift <= 1:
            raise ValueError(f"shift: expected a share in [0, 1], got {shift}")
        if gain < 0:
            raise ValueError(f"gain: expected at least 0 dB, got {gain}")
        if len(snr) != 2 or snr[0] > snr[1]:
            raise ValueError(f"snr: expected the lowest and the highest ratio in dB, got {list(snr)}")
        if not 0 < val_share < 1:
            raise ValueError(f"val_share: expected a share in (0, 1), got {val_share}")
        if not 0 <= test_share < 1 - val_share:
            raise ValueError(f"test_share: expected a share in [0, 1 - val_share), got {test_share}")
        self.root = Path(root).expanduser()
        self.sample_rate = sample_rate
        self.seconds = seconds
        self.overlap = overlap
        self.columns_of_table = {"file": file_column, "label": label_column, "start": start_column, "end": end_column}
        self.label_separator = label_separator
        self.multilabel = multilabel
        self.shift, self.gain, self.snr = shift, gain, snr
        self.noise = noise
        self.val_share = val_share
        self.test_share = test_share
        self.save_hyperparameters()

    def setup(self, stage: str) -> None:
        if hasattr(self, "train_set"):  # read already: Lightning asks for every stage
            return
        parts = self._split(self.find_clips())
        abouts = self._inspect(parts)
        self._learn(parts["train"], abouts)
        parts = {name: self._of_known(clips) for name, clips in parts.items()}
        self.augment = Distortions(self.shift, self.gain, self._noise_files(), self.snr if self.noise else None)
        self.augment.sample_rate = self.facts["sample_rate"]
        sets = {name: self._make_set(name, parts[name], abouts) for name in SPLITS if name in parts}
        self.train_set, self.val_set, self.test_set = sets["train"], sets["val"], sets.get("test")
        if self.facts["multilabel"]:
            counts = torch.as_tensor(sets["train"].targets).sum(dim=0)
            self.facts |= {"label_counts": counts.int().tolist(), "num_samples": len(sets["train"])}
        else:
            self.count_classes()
        self._tell(parts, abouts)
        files = {
            name: [clip.source for clip in clips if isinstance(clip.source, Path)] for name, clips in parts.items()
        }
        self.tell_copies(files)
        if self.check_files and not self._is_checked:
            self._tell_of_levels(sets)
        self.check_loading()

    def find_clips(self) -> dict[str, list[Clip]]:
        """Lists the clips of each split that root has; of a single folder or table, those of `train`.

        A data set with a layout of its own overrides this.
        """
        if self.root.is_file() or self._has_tables():
            return self._from_tables()
        if not self.root.is_dir():
            siblings = [entry.as_posix() for entry in self.root.parent.iterdir()] if self.root.parent.is_dir() else []
            near = nearest(self.root.as_posix(), siblings)
            raise UserError(f"--data.root {self.root.as_posix()}: no such file or folder{near}")
        folders = {name: self._folder(name) for name in SPLITS}
        train = folders["train"]
        if train is None:
            folders = {"train": self.root}
        clips: dict[str, list[Clip]] = {}
        of_classes: list[Path] = []
        for name, folder in folders.items():
            if folder is not None:
                clips[name], own = clips_in_folders(folder, self.root)
                of_classes += own
        self.leave_out_others(of_classes)
        self.is_single = train is None
        return clips

    def read(self, source: Any) -> Inputs:
        """Reads a recording: audio (T,) and length ().

        Args:
            source: path or bytes of a file of at most `seconds`; or a window of a file, as `expand` returns it.

        Raises:
            UserError: it cannot be read, or is longer.
        """
        rate = self.facts["sample_rate"]
        if isinstance(source, Mapping):
            return as_inputs(read_recording(Path(source["file"]), rate, source["first"], source["stop"]))
        about = inspect_recording(source)
        if about.seconds > self.facts["seconds"] + 1 / about.sample_rate:
            name = "the recording" if isinstance(source, bytes) else source
            raise UserError(
                f"{name}: is {about.seconds:.2f} s long, expected at most {self.facts['seconds']:g} s; "
                "predict --input with the path of a file divides it into windows"
            )
        return as_inputs(read_recording(source, rate))

    def expand(self, names: Sequence[str], places: Sequence[Any]) -> tuple[list[str], list[Any]]:
        """Divides files into overlapping windows of `seconds`, for `predict --input`; needs `facts`, but no `setup`.

        Args:
            names: of the files.
            places: path of each, or its bytes, which are not divided.

        Returns:
            Name and place of each window, for `read`. A file that cannot be read stays one, for the loader to tell.
        """
        window_names: list[str] = []
        windows: list[Any] = []
        for name, place in zip(names, places, strict=True):
            try:
                about = inspect_recording(place) if isinstance(place, Path) else None
            except UserError:
                about = None
            if about is None:
                window_names.append(name)
                windows.append(place)
                continue
            state = place.stat()
            file = {"file": place.as_posix(), "size": state.st_size, "modified": state.st_mtime_ns}
            parts = audio_windows(about, self.facts["seconds"], self.overlap)
            for first, stop in parts:
                start, end = round(first / about.sample_rate, 3), round(stop / about.sample_rate, 3)
                window_names.append(name if len(parts) == 1 else f"{name}@{start:.2f}-{end:.2f}")
                windows.append({**file, "first": first, "stop": stop, "start": start, "end": end})
        return window_names, windows

    def about(self, source: Any) -> dict[str, Any]:
        return {name: source[name] for name in ("start", "end")} if isinstance(source, Mapping) else {}

    def picture(self, source: Any) -> Tensor:
        """The log-mel spectrogram of an input as a grey picture, low frequencies at the bottom."""
        rate = self.facts["sample_rate"]
        if isinstance(source, Mapping):
            source = self.read(source)["audio"]
        audio = source if isinstance(source, Tensor) else read_recording(source, rate)  # (T,)
        x = LogMel(rate, NUM_MELS)(audio[None])[0].flip(0)  # (M, N)
        x = (x - x.min()) / (x.max() - x.min()).clamp(min=1e-6)
        return (255 * x).byte().expand(3, -1, -1)

    def preprocessing(self) -> dict[str, Any] | None:
        if "sample_rate" not in self.facts:
            return None
        facts = {name: self.facts[name] for name in ("sample_rate", "seconds")}
        return {"kind": "audio", **facts, "overlap": self.overlap}

    def ids(self, dataset: Any) -> list[str]:
        """Path of each recording, with the start and end of a part, as in `sea.wav@2.5-4`."""
        return dataset.names

    # files and rows

    def _has_tables(self) -> bool:
        return self.root.is_dir() and any(
            file.stem.lower() in SPLITS["train"]
            and file.is_file()
            and file.suffix.lower() in (".csv", ".tsv", ".jsonl")
            for file in self.root.iterdir()
        )

    def _folder(self, split: str) -> Path | None:
        """The folder of a split, by any of its names."""
        folders = [self.root / name for name in SPLITS[split] if (self.root / name).is_dir()]
        if len(folders) > 1:
            both = " and ".join(folder.name for folder in folders)
            raise UserError(f"--data.root: {self.root.as_posix()} holds {both}, expected one folder for {split}")
        return folders[0] if folders else None

    def _from_tables(self) -> dict[str, list[Clip]]:
        files = split_files(self, self.root)
        self.is_single = is_single(files, self.root)
        clips: dict[str, list[Clip]] = {}
        problems: list[Problem] = []
        for name, tables in files.items():
            clips[name] = []
            for file in tables:
                own, unusable = clips_in_table(file, self.columns_of_table, self.label_separator, partial(warn, self))
                clips[name] += own
                problems += unusable
        refuse(self, problems, sum(map(len, clips.values())))
        return clips

    def _split(self, clips: dict[str, list[Clip]]) -> dict[str, list[Clip]]:
        """Takes validation from train if there is none, and of a single folder or table the test; whole files."""
        if "val" in clips:
            return clips
        files = list(
            dict.fromkeys(id(clip) if isinstance(clip.source, Tensor) else clip.source for clip in clips["train"])
        )
        test_share = self.test_share if self.is_single else 0.0
        indices = split_indices(len(files), [1 - self.val_share - test_share, self.val_share, test_share])
        split_of = {
            files[index]: name for name, own in zip(("train", "val", "test"), indices, strict=True) for index in own
        }
        whole = clips["train"]
        cut: dict[str, list[Clip]] = {name: [] for name in ("train", "val", "test") if name in split_of.values()}
        for clip in whole:
            cut[split_of[id(clip) if isinstance(clip.source, Tensor) else clip.source]].append(clip)
        for name in ("train", "val"):
            if name not in cut:
                text = f"{self.val_share} of {len(files)} files leaves none for {name}"
                raise UserError(f"--data.val_share: {text}")
        return clips | cut

    def _inspect(self, parts: dict[str, list[Clip]]) -> dict[Path, AudioHeader]:
        """Reads the header of each file; clips of those that cannot be used end the run, or are left out."""
        abouts: dict[Path, AudioHeader] = {}
        problems: dict[Any, str] = {}
        for clip in (clip for clips in parts.values() for clip in clips):
            if isinstance(clip.source, Tensor):
                continue
            try:
                if clip.source not in abouts and clip.source not in problems:
                    abouts[clip.source] = inspect_recording(clip.source)
            except UserError as error:
                problems[clip.source] = str(error)
        for clip in (clip for clips in parts.values() for clip in clips):
            about = abouts.get(clip.source) if isinstance(clip.source, Path) else None
            last = clip.start if clip.end is None else clip.end
            if about is not None and last > about.seconds + 0.01:  # times in tables are rounded
                name, end = f"{clip.place}: " if clip.place else "", f"{about.seconds:.2f} s of {clip.source}"
                problems[clip.place] = f"{name}{last:g} s is beyond the {end}"
        for name, clips in parts.items():
            parts[name] = [clip for clip in clips if clip.source not in problems and clip.place not in problems]
        usable = sum(map(len, parts.values()))
        refuse(self, [(str(place), text) for place, text in problems.items()], usable, "recordings")
        return abouts

    # what is learnt from the training clips

    def _learn(self, train: Sequence[Clip], abouts: Mapping[Path, AudioHeader]) -> None:
        if not train:
            raise UserError("--data: no training recording can be used")
        if "classes" not in self.facts:
            several = any(len(clip.labels) > 1 for clip in train) or self.label_separator is not None
            is_multilabel = several if self.multilabel is None else self.multilabel
            if several and not is_multilabel:
                first = next((clip for clip in train if len(clip.labels) != 1), train[0])
                labels = ", ".join(first.labels) or "none"
                raise UserError(f"--data.multilabel false: {first.name}: expected one label, got {labels}")
            classes = sorted_labels([label for clip in train for label in clip.labels])
            if len(classes) < (1 if is_multilabel else 2):
                named = ", ".join(classes) or "none"
                raise UserError(f"--data.root: expected two or more labels in training, got {named}")
            self.facts |= {"classes": classes, "multilabel": is_multilabel}
        if "sample_rate" not in self.facts:
            rates = Counter(abouts[clip.source].sample_rate for clip in train if isinstance(clip.source, Path))
            self.facts["sample_rate"] = self.sample_rate or max(rates, key=lambda rate: (rates[rate], rate))
        if "seconds" not in self.facts or self.seconds is not None:
            longest = max(_seconds(self._part(clip, abouts)) for clip in train)
            self.facts["seconds"] = self.seconds or min(longest, MOST_SECONDS)

    def _of_known(self, clips: Sequence[Clip]) -> list[Clip]:
        """The clips whose labels training has; others end the run, or are left out."""
        classes = self.facts["classes"]
        problems = {}
        for clip in clips:
            if unknown := [label for label in clip.labels if label not in classes]:
                text = f"training has no label {unknown[0]}, but {', '.join(classes[:5])}{nearest(unknown[0], classes)}"
                problems[clip.place or clip.name] = f"{clip.place or clip.name}: {text}"
        usable = [clip for clip in clips if (clip.place or clip.name) not in problems]
        refuse(self, list(problems.items()), len(usable), "recordings")
        return usable

    def _make_set(self, name: str, clips: Sequence[Clip], abouts: Mapping[Path, AudioHeader]) -> Clips:
        classes = self.facts["classes"]
        number = {label: index for index, label in enumerate(classes)}
        targets: Any = [number[clip.labels[0]] for clip in clips] if not self.facts["multilabel"] else None
        if targets is None:
            targets = torch.zeros(len(clips), len(classes))  # (N, K)
            for row, clip in zip(targets, clips, strict=True):
                row[[number[label] for label in clip.labels]] = 1
        parts = [self._part(clip, abouts) for clip in clips]
        rate, seconds = self.facts["sample_rate"], self.facts["seconds"]
        return Clips(clips, parts, targets, rate, seconds, is_training=name == "train")

    def _part(self, clip: Clip, abouts: Mapping[Path, AudioHeader]) -> Part:
        if isinstance(clip.source, Tensor):
            return Part(0, len(clip.source), self.facts["sample_rate"])
        about = abouts[clip.source]
        end = about.num_samples if clip.end is None else min(round(clip.end * about.sample_rate), about.num_samples)
        start = min(round(clip.start * about.sample_rate), end - 1)
        return Part(start, end, about.sample_rate)

    def _noise_files(self) -> list[Path]:
        if self.noise in (None, WHITE):
            return []
        folder = Path(str(self.noise)).expanduser()
        files = files_below(folder, SUFFIXES) if folder.is_dir() else []
        if not files:
            raise UserError(f"--data.noise {self.noise}: expected white, or a folder of {', '.join(SUFFIXES)}")
        for file in files:
            inspect_recording(file)
        return files

    # what is told

    def _tell(self, parts: Mapping[str, Sequence[Clip]], abouts: Mapping[Path, AudioHeader]) -> None:
        """Says what there is, and what is changed when it is read."""
        if not self.speaks or self.has_trained:
            return
        clips = [clip for own in parts.values() for clip in own]
        used = {clip.source for clip in clips if isinstance(clip.source, Path)}
        rate, seconds = self.facts["sample_rate"], self.facts["seconds"]
        counts = ", ".join(f"{len(parts[name]):,} {name}" for name in SPLITS if name in parts)
        print(f"{len(clips):,} clips ({counts}), {rate:,} Hz, at most {seconds:g} s", flush=True)
        changes = {
            f"have another sampling rate than {rate:,} Hz and are resampled": [
                file for file in used if abouts[file].sample_rate != rate
            ],
            "have several channels, which are averaged": [file for file in used if abouts[file].num_channels > 1],
        }
        for what, files in changes.items():
            if files:
                print(f"{len(files):,} of {len(used):,} files {what}, such as {min(files).as_posix()}", flush=True)
        longer = [clip for clip in clips if _seconds(self._part(clip, abouts)) > seconds + 0.001]
        if longer:
            self.counts["cut_clips"] = len(longer)
            text = f"{len(longer):,} of {len(clips):,} clips are longer than {seconds:g} s, such as {longer[0].name}"
            print(f"{text}: training takes a random part, evaluation the middle (--data.seconds)", flush=True)

    def _tell_of_levels(self, sets: Mapping[str, Clips]) -> None:
        """Counts silent and clipped clips; those that cannot be read are counted by `check_loading`."""
        silent, clipped = [], []
        for clips in sets.values():
            for index, name in enumerate(clips.names):
                try:
                    audio = clips[index][0]["audio"].abs()
                except UserError:
                    continue
                if float(audio.max()) == 0:
                    silent.append(name)
                elif float((audio > 0.999).float().mean()) > 0.001:
                    clipped.append(name)
        for kind, names in {"silent": silent, "clipped": clipped}.items():
            if names:
                self.counts[f"{kind}_clips"] = len(names)
                total = sum(map(len, sets.values()))
                warn(
                    self, f"{len(names):,} of {total:,} clips are {kind}, such as {names[0]}; they are used as they are"
                )


def _seconds(part: Part) -> float:
    return (part.stop - part.start) / part.rate
