"""Runs one call of a mapped function in its own process: ``python -P -S .iris-call/run.py``.

The client sends this file along, so the host's interpreter needs no package of Iris; it needs
cloudpickle only where a pickle names more of it than `_OWN` has. It imports little, because that is
most of the time of a short call: ``site`` when the first module is missing, ``traceback`` when
something was raised. Out of scope: the caller's side (`calls`, `outcomes`). Source:
    docs/design/calls.md#arguments.
"""

import builtins
import posix
import sys
from _pickle import Unpickler, dumps, loads
from io import BytesIO
from types import CodeType, FunctionType

TYPE_CHECKING = False
if TYPE_CHECKING:  # `typing` takes longer than a short call
    from collections.abc import Callable
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any
else:
    ModuleType = type(sys)

SMALL = 64 * 1024
"""Bytes of an outcome that travel in a message; a larger one is stored as an artifact."""
HEAD = 4096
"""Bytes of a table file that are read at once."""
LARGE_NAME = ".iris-result"
LARGE_DIRECTORY = ".iris-large"
VALUE = b"v"
ERROR = b"e"
CHUNK = b"c"
"""The first byte of a result file; the capital letter: the rest is in the output directory."""


class LateSite:
    """Adds the packages of the interpreter to the search path when the first module is not found
    without them.
    """

    @classmethod
    def find_spec(cls, name: str, path: "Any" = None, target: "Any" = None) -> "ModuleSpec | None":
        if path is not None:
            return None
        sys.meta_path.remove(cls)
        import site

        site.main()
        found = (finder.find_spec(name, path, target) for finder in sys.meta_path)
        return next((spec for spec in found if spec is not None), None)


class SentModules:
    """Finds the modules that only the client's machine has, in what it has sent of them.

    They come before those of this host, because the client has found them first, too. ``sources``:
    as of `iris.client.maps.local_modules`.
    """

    def __init__(self, sources: "dict[str, tuple[bytes, str, bool]]") -> None:
        self.sources = sources

    def find_spec(self, name: str, path: "Any" = None, target: "Any" = None) -> "ModuleSpec | None":
        if name not in self.sources:
            return None
        from importlib.machinery import ModuleSpec

        _, file, is_package = self.sources[name]
        return ModuleSpec(name, self, origin=file, is_package=is_package)  # type: ignore[arg-type]

    def create_module(self, spec: "ModuleSpec") -> None:
        """The usual one."""

    def exec_module(self, module: "Any") -> None:
        source, file, _ = self.sources[module.__name__]
        module.__file__ = file
        exec(compile(source, file, "exec"), module.__dict__)

    def get_source(self, name: str) -> str:
        """For the lines of tracebacks."""
        return self.sources[name][0].decode(errors="replace")


def add_sent_modules(data: bytes) -> None:
    """Have modules found in what was sent of them; empty for none."""
    sys.meta_path[:] = [one for one in sys.meta_path if not isinstance(one, SentModules)]
    if data:
        sys.meta_path.insert(0, SentModules(loads(data)))


def prepare_path(workdir: str) -> None:
    """Search modules as a script in ``workdir`` does. ``PYTHONPATH`` is there already."""
    sys.path.insert(0, workdir)
    sys.meta_path.append(LateSite)
    builtins.exit = builtins.quit = sys.exit  # type: ignore[assignment]  # `site` would define them


# ── the script of the caller ──────────────────────────────────────────────────────────────────────


class CallersMain(ModuleType):
    """The module ``__main__`` of the caller, as far as it was sent: plain pickles name what is in
    it, and so do processes that the function starts.

    ``directory``: where the files of the call are.
    """

    before: "Any" = None
    directory = ""

    @property
    def __file__(self) -> str:  # type: ignore[override]  # the caller's, in a variable, stays its own
        """What `multiprocessing` has a process run first that is not forked from this one: this
        file, as ``__mp_main__``. What the function itself sees as ``__file__`` is the caller's.
        """
        return f"{CallersMain.directory}/run.py"


def variables_of_main() -> "dict[str, Any]":
    """The variables of the caller's ``__main__``, which takes the place of this file."""
    main = sys.modules.get("__main__")
    if not isinstance(main, CallersMain):
        before = main
        main = CallersMain("__main__")
        main.before = before
        sys.modules["__main__"] = main
    return main.__dict__


def callers_main(here: str) -> "dict[str, Any]":
    """The variables of the caller's ``__main__``, for a process that was not forked from the call
    whose files are ``here``. Raises what unpickling raises.
    """
    sys.meta_path.append(LateSite)
    path = f"{here}/function"
    add_sent_modules(entry(path, 4))
    unpickled(entry(path, 0), entry(path, 3).decode())
    return {**variables_of_main(), "__name__": "__mp_main__"}


def _keep_in_main(made: "Any") -> "Any":
    """A function or class of the caller's ``__main__`` is there by its name."""
    if made.__module__ == "__main__" and "." not in made.__qualname__:
        variables_of_main().setdefault(made.__qualname__, made)
    return made


# ── what cloudpickle names for a function that is sent by value ───────────────────────────────────


def _make_function(
    code: CodeType, variables: "dict[str, Any]", name: str, defaults: "Any", closure: "Any"
) -> FunctionType:
    if variables.get("__name__") == "__main__":
        here = variables_of_main()
        here.update({key: value for key, value in variables.items() if key not in here})
        variables = here
    variables["__builtins__"] = builtins
    return FunctionType(code, variables, name, defaults, closure)


def _builtin_type(name: str) -> "Any":
    import types

    return getattr(types, name)


_EMPTY = object()


def _make_cell(value: object = _EMPTY) -> "Any":
    [cell] = (lambda: value).__closure__ or ()
    if value is _EMPTY:
        del cell.cell_contents
    return cell


def _function_setstate(
    function: FunctionType, state: "tuple[dict[str, Any], dict[str, Any]]"
) -> None:
    attributes, slots = state
    function.__dict__.update(attributes)
    function.__globals__.update(slots.pop("__globals__"))
    function.__globals__["__builtins__"] = builtins
    del slots["_cloudpickle_submodules"]
    for mine, sent in zip(function.__closure__ or (), slots.pop("__closure__") or (), strict=True):
        try:
            mine.cell_contents = sent.cell_contents
        except ValueError:  # an empty cell
            continue
    for name, value in slots.items():
        setattr(function, name, value)
    _keep_in_main(function)


def subimport(name: str) -> "Any":
    __import__(name)
    return sys.modules[name]


_OWN: "dict[str, Callable[..., Any]]" = {
    "_make_function": _make_function,
    "_builtin_type": _builtin_type,
    "_make_cell": _make_cell,
    "_make_empty_cell": _make_cell,
    "_function_setstate": _function_setstate,
    "subimport": subimport,
}


class Loader(Unpickler):
    """Loads what cloudpickle wrote, without cloudpickle while `_OWN` has what it names.

    Code is of one version of Python: ``made_by`` is that of the sender.
    """

    made_by = ""

    def find_class(self, module: str, name: str) -> "Any":
        if module != "cloudpickle.cloudpickle":
            return super().find_class(module, name)
        here = f"{sys.version_info[0]}.{sys.version_info[1]}"
        if name == "_make_function" and self.made_by not in ("", here):
            raise TypeError(
                f"the function or an argument is code of Python {self.made_by}, and this host runs "
                f"it by {here}: call it from Python {here}, have python{self.made_by} in the PATH "
                f'of the workers of the host, or ask for it by python="{self.made_by}"'
            )
        if name == "_make_skeleton_class":
            make = super().find_class(module, name)
            return lambda *sent: _keep_in_main(make(*sent))
        return _OWN.get(name) or super().find_class(module, name)


# ── table files: u32 count, count + 1 offsets of u64, blobs ───────────────────────────────────────


def entry(path: str, index: int) -> bytes:
    """One blob of a table file, by one read of a small file; empty when it has none of that
    index.
    """
    fd = posix.open(path, posix.O_RDONLY | posix.O_CLOEXEC)
    try:
        head = posix.pread(fd, HEAD, 0)
        at = 4 + 8 * index
        if index >= int.from_bytes(head[:4], "little"):
            return b""
        where = head[at : at + 16] if at + 16 <= HEAD else posix.pread(fd, 16, at)
        start = int.from_bytes(where[:8], "little")
        end = int.from_bytes(where[8:], "little")
        data = head[start:end]
        while len(data) < end - start:
            more = posix.pread(fd, end - start - len(data), start + len(data))
            if not more:
                raise EOFError(f"{path} ends within entry {index}")
            data += more
        return data
    finally:
        posix.close(fd)


# ── the call ──────────────────────────────────────────────────────────────────────────────────────


class MappedFunction:
    """A function as it was sent: with constant keyword arguments; ``chunked``: for several items at
    once; ``made_by``: the version of Python of what was pickled for it.
    """

    def __init__(
        self,
        function: "Callable[..., Any]",
        kwargs: "dict[str, Any]",
        chunked: bool,
        made_by: str = "",
    ) -> None:
        self.function = function
        self.kwargs = kwargs
        self.chunked = chunked
        self.made_by = made_by


def load_function(path: str) -> MappedFunction:
    """The function of a map. Raises what unpickling raises."""
    made_by = entry(path, 3).decode()
    add_sent_modules(entry(path, 4))
    variables_of_main()
    function = unpickled(entry(path, 0), made_by)
    kwargs = entry(path, 1)
    return MappedFunction(
        function,
        unpickled(kwargs, made_by) if kwargs else {},
        entry(path, 2) == b"1",
        made_by,
    )


def unpickled(data: bytes, made_by: str) -> "Any":
    """What a client has pickled with that Python. Raises what unpickling raises."""
    loader = Loader(BytesIO(data))
    loader.made_by = made_by
    return loader.load()


def run_call(
    call: "MappedFunction | Callable[[], MappedFunction]", items: str, index: int, directory: str
) -> int:
    """As `outcome_of`, with the result in a file in ``directory``. Returns the exit code."""
    code, result = outcome_of(call, items, index, directory)
    leave(result, directory)
    return code


def outcome_of(
    call: "MappedFunction | Callable[[], MappedFunction]", items: str, index: int, directory: str
) -> "tuple[int, bytes]":
    """Call the function with entry ``index`` of the file ``items``; returns the exit code and what
    `leave` writes.

    ``call``: or a function that returns it, whose exceptions are then the outcome.
    """
    CallersMain.directory = directory
    process = posix.getpid()
    kind, payload = _outcome(call, items, index)
    if posix.getpid() != process:  # the function has forked and returned in both
        posix._exit(0)
    code = (
        1
        if kind == ERROR or (kind == CHUNK and any(part[0] == ERROR for part in loads(payload)))
        else 0
    )
    return code, _packed(kind, payload, directory)


def _outcome(
    call: "MappedFunction | Callable[[], MappedFunction]", items: str, index: int
) -> "tuple[bytes, bytes]":
    try:
        call = call if isinstance(call, MappedFunction) else call()
        arguments = unpickled(entry(items, index), call.made_by)
    except Exception as error:  # noqa: BLE001 - unpickling may raise anything
        return ERROR, failure(error)
    if not call.chunked:
        return _called(call, arguments)
    return CHUNK, dumps([_called(call, one) for one in arguments], 5)


def _called(call: MappedFunction, arguments: "tuple[Any, ...]") -> "tuple[bytes, bytes]":
    try:
        value = call.function(*arguments, **call.kwargs)
    except SystemExit:
        raise
    except BaseException as error:  # noqa: BLE001 - the caller's function may raise anything
        return ERROR, failure(error)
    try:
        return VALUE, _dumps(value)
    except Exception as error:  # noqa: BLE001 - pickling may raise anything
        return ERROR, failure(TypeError(f"the result cannot be sent back: {error}"))


def _dumps(value: object) -> bytes:
    """A pickle; cloudpickle's where the plain one does not know how, or would name what only this
    process has.
    """
    try:
        data = dumps(value, 5)
    except Exception:  # noqa: BLE001 - pickling may raise anything
        data = None
    if data is not None and b"__main__" not in data:
        return data
    import cloudpickle

    pickled: bytes = cloudpickle.dumps(value)
    return pickled


def failure(error: BaseException) -> bytes:
    """An exception as it is sent: the length of its text, that, and its pickle; empty where it has
    none.

    The first line of the text names the exception, and says why it has no pickle; its traceback
    follows.
    """
    import traceback

    frames = error.__traceback__
    trace = "".join(
        traceback.format_exception(type(error), error, frames and (frames.tb_next or frames))
    )
    try:
        sys.stderr.write(trace)
    except (AttributeError, OSError, ValueError):  # the function has closed it
        pass
    name = _first_line(error)
    try:
        data = _dumps(error)
    except Exception as why:  # noqa: BLE001 - pickling may raise anything
        name = f"{name} (its host cannot pickle it: {_first_line(why)})"
        data = b""
    text = f"{name}\n{trace}".encode(errors="replace")
    return len(text).to_bytes(4, "little") + text + data


def _first_line(error: BaseException) -> str:
    """``ValueError: too large``; of a SyntaxError the file is left out, which comes before."""
    import traceback

    lines = traceback.format_exception_only(type(error), error)
    return next(line for line in lines if line[0] != " ").partition("\n")[0]


def _packed(kind: bytes, payload: bytes, directory: str) -> bytes:
    """A result as it is sent; a large one is in the output directory."""
    if len(payload) <= SMALL:
        return kind + payload
    place = posix.environ.get(b"IRIS_OUTPUT", b"").decode() or f"{directory}/../{LARGE_DIRECTORY}"
    try:
        posix.mkdir(place, 0o700)
    except FileExistsError:
        pass
    _write_file(f"{place}/{LARGE_NAME}", payload)
    return kind.upper()


def leave(result: bytes, directory: str) -> None:
    """Write the result file as a whole or not at all."""
    draft = f"{directory}/result.new"
    _write_file(draft, result)
    posix.rename(draft, f"{directory}/result")


def _write_file(path: str, data: bytes) -> None:
    fd = posix.open(path, posix.O_WRONLY | posix.O_CREAT | posix.O_TRUNC | posix.O_CLOEXEC, 0o600)
    try:
        view = memoryview(data)
        while view:
            view = view[posix.write(fd, view) :]
    finally:
        posix.close(fd)


def finish(code: int) -> None:
    """End this process as an interpreter does, without taking its modules apart."""
    if (threading := sys.modules.get("threading")) is not None:
        threading._shutdown()
    import atexit

    atexit._run_exitfuncs()
    for file in (sys.stdout, sys.stderr):
        try:
            file.flush()
        except (AttributeError, OSError, ValueError):  # the function has closed it
            pass
    posix._exit(code)


def main() -> None:
    workdir = posix.getcwd()
    prepare_path(workdir)
    here = f"{workdir}/.iris-call"  # the function may change the directory
    finish(run_call(lambda: load_function(f"{here}/function"), f"{here}/items", 0, here))


if __name__ == "__main__":
    main()
elif __name__ == "__mp_main__":
    globals().update(callers_main(__file__.rpartition("/")[0]))
