"""Is run by every Python below ``pymongo-deprio run``, as its folder leads PYTHONPATH.

Most of them have nothing to do with MongoDB, and some are older than the package allows: so it
imports nothing before PyMongo is imported, and has no syntax of newer Pythons.
"""

import os
import sys


class _Finder:
    """Finds PyMongo as the finders behind it do, and has it patched once it is imported.

    While a finder is asked, Python holds the import lock of all modules: whoever imports something
    here may wait for a thread that waits for that lock. And it stays in its place, as threads walk
    along sys.meta_path.
    """

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> object:
        """Return where PyMongo is; None for all else."""
        if name != "pymongo":
            return None
        finders = list(sys.meta_path)
        for finder in finders[finders.index(_Finder) + 1 :]:  # type: ignore[arg-type]
            find_spec = getattr(finder, "find_spec", None)  # very old ones have none
            spec = find_spec and find_spec(name, path, target)
            if spec is not None:
                if hasattr(spec.loader, "exec_module"):
                    spec.loader = _Loader(spec.loader)
                return spec
        return None


class _Loader:
    """Loads as another one does, which then takes its place again."""

    def __init__(self, loader: object) -> None:
        self._loader = loader

    def __getattr__(self, name: str) -> object:
        return getattr(self._loader, name)

    def create_module(self, spec: object) -> object:
        create = getattr(self._loader, "create_module", None)
        return create and create(spec)

    def exec_module(self, module: object) -> None:
        module.__loader__ = module.__spec__.loader = self._loader  # type: ignore[attr-defined]
        self._loader.exec_module(module)  # type: ignore[attr-defined]
        _enable()


def _enable() -> None:
    try:
        import pymongo_deprio.auto  # noqa: F401, PLC0415
    except Exception as error:  # an application does not fail for its launcher
        if type(error).__module__.startswith("pymongo_deprio"):
            raise  # but for PYMONGO_DEPRIO_STRICT
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
