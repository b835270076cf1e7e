"""``millwheel run``: checks everything that can be checked, takes the root, runs, and reports the
result."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import suppress
from enum import Enum
from pathlib import Path

import msgspec
from rich.console import Console

from millwheel.adapters.durable_store import open_space
from millwheel.adapters.grpc.certificates import warning_of
from millwheel.adapters.grpc.security import check_listen, load_security, make_token
from millwheel.adapters.processes.address import check_reach
from millwheel.adapters.rights import keep_private
from millwheel.adapters.spaces.root_address import in_bucket
from millwheel.adapters.spaces.root_notes import ReplayOrders
from millwheel.connect.kinds import build_sink, lookup_of
from millwheel.connect.own_functions import expressions_in, language_of
from millwheel.connect.sinks.base import Sink
from millwheel.control.roots.bucket import BucketRoot
from millwheel.control.roots.inputs import changed_inputs, forget_ends, keep_ends, keep_inputs
from millwheel.control.roots.root import ACCESS, Root, write_atomically
from millwheel.control.roots.shipping import ship, with_defaults
from millwheel.control.savepoints.afresh import begin_afresh
from millwheel.control.savepoints.record import read_record
from millwheel.control.savepoints.restore import former_identity, refuse_saved, restore, restored
from millwheel.control.savepoints.take import savepoint_folder
from millwheel.control.savepoints.upgrade import (
    blueprint_bytes,
    changed_since,
    check_same_root,
    check_savepoint,
    kept_blueprint,
)
from millwheel.core.pipeline.graph import build_graph
from millwheel.core.pipeline.spec import PipelineSpec, SinkSpec
from millwheel.core.pipeline.work import LookupSpec
from millwheel.engine.letters import Replays, ask, letters_folder, read_letters
from millwheel.engine.workers.operators.broadcast.rows import missing_rows
from millwheel.errors import BrokenError, SetupError
from millwheel.language.spec import PipelineFile, load_pipeline, resolve_params
from millwheel.language.spec.checks.field_flow import exact_fields, fields_of_classes
from millwheel.launch.launchers.spark.master import (
    check_installed,
    check_machines,
    check_master,
    remote_note,
)
from millwheel.launch.launchers.spark.settings import check_conf
from millwheel.launch.launchers.warm_children import Children
from millwheel.launch.progress.report import report
from millwheel.launch.progress.summary import Summary
from millwheel.launch.run import Running
from millwheel.launch.services import check_page
from millwheel.launch.settings import LauncherKind, RunSettings

_ROOM_BYTES = 64 << 20
"""The free space that a root needs before a run begins."""


class RunEnd(Enum):
    """How a run without errors ended."""

    COMPLETE = "complete"
    CAUGHT_UP = "caught up"
    STOPPED = "stopped"


class Driver:
    """Runs one pipeline on one root. ``console`` (standard error) gets progress and messages.
    ``children``: see :func:`millwheel.launch.head_start.children_for`."""

    def __init__(self, settings: RunSettings, console: Console, children: Children | None) -> None:
        self._settings = settings
        self._console = console
        self._children = children
        self.ended = RunEnd.STOPPED
        self.summary: Summary | None = None

    def run(self) -> int:
        """Run until bounded input has drained, the run has caught up, or it is stopped. Returns
        exit code 0 in all three cases.

        Raises PipelineError or SetupError, with sentences, when the pipeline cannot run.
        """
        check_reach(self._settings.listen, self._settings.zookeeper)
        if self._settings.launcher is LauncherKind.SPARK and not self._settings.submitted:
            self._check_spark(self._settings.spark_master)
        elif self._settings.conf:
            raise SetupError(
                "--conf is for workers in Spark; add --launcher spark or --spark-master URL, or"
                " leave it out"
            )
        self._check_security()
        if self._settings.ui_port is not None:
            check_page(self._settings.ui_host, self._settings.ui_port)
        spec = self._validated()
        for stream in spec.streams:
            if (
                stream.source is not None
                and stream.source.kind == "injection"
                and "port" in stream.source.options
            ):
                options = stream.source.options
                check_listen(
                    f"{options['host']}:{options['port']}", load_security(self._settings.security)
                )
        address = self._settings.root_address(spec.name)
        root = self._taken(address, spec.name)
        try:
            self._run_on(root, with_defaults(spec, str(root.path)))
        except OSError as error:
            where = f" on {error.filename}" if error.filename else ""
            raise SetupError(f"The run failed{where}: {error.strerror or error}") from error
        finally:
            root.close()
        return 0

    def _check_security(self) -> None:
        """Raise SetupError when the security folder is not one, or does not suffice for where the
        run listens."""
        settings = self._settings
        credentials = load_security(settings.security)
        if settings.open and credentials is not None:
            raise SetupError("--open runs without a token, and --security has one: leave one out")
        if credentials is not None and credentials.tls is None:
            raise SetupError(
                f"{settings.security} has no certificates; `millwheel certs FOLDER` makes a set"
            )
        if (
            credentials is not None
            and credentials.tls is not None
            and (warning := warning_of(credentials.tls.ends()))
        ):
            self._announce(f"Warning: {warning}")
        check_listen(f"{settings.listen}:0", credentials)

    def _access(self, root: Root) -> str:
        """The folder with the token of this run, "" for a run without one."""
        if self._settings.open:
            self._announce(
                "Warning: --open: this run asks for no token, so every user of this machine can"
                " read, change and stop it"
            )
        elif not self._settings.security:
            make_token(root.path / ACCESS)
            return str(root.path / ACCESS)
        return self._settings.security

    def _taken(self, address: str, pipeline: str) -> Root:
        group = self._settings.group
        if in_bucket(address):
            root: Root = BucketRoot.at(address, pipeline, self._announce, group=group)
        else:
            root = Root.open(address, pipeline, group, self._announce)
        if group:
            keep_private(str(root.path))
        return root

    def _check_spark(self, master: str) -> None:
        check_installed()
        check_conf(self._settings.conf)
        check_master(master)
        check_machines(master, self._settings.zookeeper)
        if note := remote_note(master, os.environ):
            self._announce(note)

    def _validated(self) -> PipelineSpec:
        path = self._settings.pipeline
        file = PipelineFile.of(path).file
        if not Path(file).is_file():
            raise SetupError(
                f"There is no pipeline file {file}; give the path of a YAML or Python file"
            )
        params = resolve_params(path, self._settings.params, os.environ, os.getcwd())
        return load_pipeline(path, params, secured=bool(self._settings.security))

    def _run_on(self, root: Root, spec: PipelineSpec) -> None:
        if self._settings.fresh:
            begin_afresh(
                root, spec, self._settings.from_savepoint, self._settings.zookeeper, self._announce
            )
        replays = Replays(ReplayOrders(open_space(root.address)), spec, build_graph(spec))
        done = root.completed()
        if done is not None and replays.orders.pending():
            self._check_same_input(root, spec)
            self._announce("The run was complete; dead letters of it are tried again.")
        elif done is not None:
            self._check_same_input(root, spec)
            _refuse_changed(root, spec)
            self._announce(_complete(root.address))
            return self._report(RunEnd.COMPLETE, msgspec.convert(done, Summary))
        refuse_saved(root.path)
        former = self._begin(root, spec)
        self._prepare(root, spec, former)
        replays.bind()
        began_s = time.time()
        try:
            running = Running(
                self._settings,
                spec,
                root,
                self._console,
                replays,
                self._children,
                self._access(root),
            )
            summary = running.run()
        except BrokenError as error:
            self._try_again(root, replays, error.node, began_s)
            raise
        if summary is None:
            return self._announce(
                f"Stopped. The same command continues on the root {root.address} where this one"
                " stopped."
            )
        if running.caught_up:
            self._announce(
                f"Caught up. The same command continues on the root {root.address} with input"
                " that has come since."
            )
            return self._report(RunEnd.CAUGHT_UP, summary)
        root.complete(summary.to_json())
        if replays.open:
            self._announce(
                f"{replays.left():,} dead letters wait to be tried again by the next run on this"
                " root."
            )
        return self._report(RunEnd.COMPLETE, summary)

    def _report(self, ended: RunEnd, summary: Summary) -> None:
        self.ended, self.summary = ended, summary
        report(summary, self._console, self._settings.summary)

    def _try_again(self, root: Root, replays: Replays, node: str, since_s: float) -> None:
        """Request a replay of the dead letters of the computation that stopped this run: they have
        the same cause."""
        with suppress(SetupError):  # letters that go elsewhere are there to be looked at
            letters = list(read_letters(letters_folder(replays.spec, root.path)))
            own_letters = [
                letter
                for letter in letters
                if letter.computation == node and letter.written_s >= since_s
            ]
            if count := ask(root.path, replays.orders, own_letters, None):
                self._announce(f"The next run also tries {count:,} dead letters of this one again.")

    def _check_same_input(self, root: Root, spec: PipelineSpec) -> None:
        changed = changed_inputs(spec, root.path)
        if changed:
            raise SetupError(
                f"The run on {root.address} has processed all of its input, and now"
                f" {'; '.join(changed)}. Give a new --root for new input, or --fresh (in Python:"
                " fresh=True), which removes this root and the results that belong to it."
            )

    def _begin(self, root: Root, spec: PipelineSpec) -> str:
        """Check the pipeline against the state of the root; a new root begins with the named
        savepoint. Returns whose results the run may continue, besides its own."""
        begun = restored(root.path)
        if not self._settings.from_savepoint:
            check_same_root(root.path, spec, self._announce)
            return former_identity(begun) if begun is not None else ""
        folder = savepoint_folder(self._settings.from_savepoint)
        record = read_record(folder)
        if begun is None and (root.used() or kept_blueprint(root.path) is not None):
            raise SetupError(
                f"The root {root.address} has a state of its own. Give a new --root for a run from"
                " the savepoint, or leave --from-savepoint out to continue with the state of the"
                " root."
            )
        if begun is not None and begun.name != record.name:
            raise SetupError(
                f"The root {root.address} began with another savepoint than {folder}. Give a new"
                " --root."
            )
        if begun is None:
            check_savepoint(record.blueprint, folder, spec, self._announce)
            restore(record, folder, root.path, root.address, spec)
            self._announce(
                f"The new root {root.address} begins with the savepoint {folder} of {record.taken}."
            )
        else:
            check_same_root(root.path, spec, self._announce)
        return former_identity(record)

    def _prepare(self, root: Root, spec: PipelineSpec, former: str) -> None:
        """Check and write everything that must be in the root before the first process starts."""
        root.check_reach(spec, self._settings.far)
        root.probe(_ROOM_BYTES)
        fields = exact_fields(spec, fields_of_classes(spec))
        language = language_of(spec)
        for sink in spec.sinks:
            with expressions_in(language):
                built = build_sink(sink, spec.folder)
            if former:
                built.adopt(former, str(root.identity))
            built.check(str(root.identity))
            if sink.stream in fields:
                _check_fields(sink, built, fields[sink.stream])
        for each in spec.computations:
            if isinstance(each.work, LookupSpec):
                with expressions_in(language):
                    lookup = lookup_of(each, spec.folder)
                lookup.check()
        for sentence in changed_inputs(spec, root.path):
            self._announce(f"Note: {sentence}; this run continues with the root's original input.")
        keep_inputs(spec, root.path)
        for path, rows in missing_rows(spec, root.path, language, self._announce):
            write_atomically(path, rows)
        if self._settings.until_caught_up:
            keep_ends(spec, root.path)
        else:
            forget_ends(root.path)
        ship(self._settings.pipeline, self._settings.params, root.path, spec, blueprint_bytes(spec))
        root.share()
        root.clear_scratch()

    def _announce(self, sentence: str) -> None:
        self._console.print(sentence, markup=False, highlight=False, soft_wrap=True)


def _check_fields(spec: SinkSpec, sink: Sink, fields: Sequence[str]) -> None:
    try:
        sink.check_fields(fields)
    except SetupError as ex:
        raise SetupError(
            f"{f'{spec.where}: ' if spec.where else ''}sinks.{spec.stream}.{spec.kind}: {ex}"
        ) from ex


def _refuse_changed(root: Root, spec: PipelineSpec) -> None:
    """Results of another program do not count."""
    if changed := changed_since(root.path, spec):
        heading = (
            f"The run on {root.address} is complete, and the pipeline {spec.name!r} has changed"
            " since:"
        )
        fix = (
            "Its results are those of the former pipeline. To run the new one from the beginning,"
            " give --fresh (in Python: fresh=True), which removes this root and the results that"
            " belong to it, or a new --root and other folders for its results."
        )
        raise SetupError("\n".join([heading, *changed, fix]))


def _complete(address: str) -> str:
    return (
        f"The run on {address} was complete already: it has processed all of its input, so nothing"
        " was done. To run the pipeline again from the beginning, give --fresh (in Python:"
        " fresh=True), which removes this root and the results that belong to it, or a new --root"
        " and other folders for its results. To go on from where it once stood, give a new --root"
        " and --from-savepoint FOLDER (`millwheel savepoint` takes one of a run that is going on)."
        " Its summary:"
    )
