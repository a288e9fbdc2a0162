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
    def find_spec(name: str, path: object = None, target: object = None) -> object:  # noqa: ARG004
        """Have PyMongo patched as soon as it has been imported."""
        if _Finder.is_done or name != "pymongo":
            return None
        _Finder.is_done = True
        import importlib.util  # noqa: PLC0415

        if importlib.util.find_spec(name) is not None:
            _enable()
        # Once more: the hook that sees the end of the import stands before those asked before.
        return importlib.util.find_spec(name)


def _enable() -> None:
    try:
        import pymongo_deprio.auto  # noqa: F401, PLC0415
    except Exception as error:  # noqa: BLE001 - an application does not fail for its launcher
        sys.stderr.write(
            "pymongo_deprio: PyMongo is not patched in this process of {}: {}\n".format(
                sys.executable, error
            )
        )


def _run_what_is_hidden() -> None:
    """Run the sitecustomize that would have been found without this one."""
    here = os.path.dirname(os.path.abspath(__file__))
    # For good: another launcher's sitecustomize that looks for the next one must not find ours.
    sys.path[:] = [folder for folder in sys.path if os.path.abspath(folder or ".") != here]
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
