"""Is run by every Python below ``pymongo-deprio run``, as its folder leads PYTHONPATH.

Most of them have nothing to do with MongoDB, and some are older than the package allows: so it
imports nothing before PyMongo is imported, and has no syntax of newer Pythons.
"""

import os
import sys


class _Finder:
    """Is asked for each module that is imported, until that is PyMongo.

    It stays in its place then: a thread that looks for a module walks along this very list, and
    would miss the next finder if one before it went.
    """

    is_done = False

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> object:
        """Have PyMongo patched as soon as it has been imported."""
        if _Finder.is_done or name != "pymongo" or _ask_others(name, path, target) is None:
            return None
        _Finder.is_done = True
        _enable()
        # Once more: among them is now the hook that sees the end of the import.
        return _ask_others(name, path, target)


def _ask_others(name: str, path: object, target: object) -> object:
    for finder in list(sys.meta_path):
        find_spec = getattr(finder, "find_spec", None)
        spec = None
        if find_spec is not None and finder is not _Finder:  # type: ignore[comparison-overlap]
            spec = find_spec(name, path, target)
        if spec is not None:
            return spec
    return None


def _enable() -> None:
    try:
        import pymongo_deprio.auto  # noqa: F401, PLC0415
    except Exception as error:  # noqa: BLE001 - an application does not fail for its launcher
        _tell("PyMongo is not patched in this process of {}: {}".format(sys.executable, error))


def _tell(message: str) -> None:
    try:
        sys.stderr.write("pymongo_deprio: " + message + "\n")
    except Exception:  # noqa: BLE001, S110 - a daemon may have closed it
        pass


def _run_what_is_hidden() -> None:
    """Run the sitecustomize that would have been found without this one."""
    here = os.path.dirname(__file__)
    # For good: another launcher's sitecustomize that looks for the next one must not find ours.
    sys.path[:] = [folder for folder in sys.path if folder != here]
    this = sys.modules.pop("sitecustomize", None)
    try:
        import sitecustomize  # type: ignore[import-not-found]  # noqa: F401, PLC0415
    except ImportError as error:
        if error.name != "sitecustomize":
            raise
    finally:
        if this is not None:
            sys.modules.setdefault("sitecustomize", this)


sys.meta_path.insert(0, _Finder)  # type: ignore[arg-type]
_run_what_is_hidden()
