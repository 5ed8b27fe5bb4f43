"""Methods of the tutorials' classes that users replace, in a subclass, in the class or in one instance.

A method marked with `hook` is a step of the tutorial's computation. The fused attention skips such steps, so a class
checks with `replaced` and calls a replaced step on arrays of all pairs. `Refusing` raises for steps that no class of
relpos has.

SPDX-License-Identifier: Apache-2.0"""
import inspect
import types

_ORIGINALS = []


def hook(method):
    """Mark a method as a step that users may replace."""
    _ORIGINALS.append(method)
    return method


def replaced(x, *names):
    """Return the first of these methods of x that is not marked with `hook`, or None."""
    for name in names:
        method = getattr(x, name, None)
        function = method.__func__ if isinstance(method, types.MethodType) else method
        if method is not None and all(function is not original for original in _ORIGINALS):
            return name
    return None


class Refusing:
    """A class that raises TypeError if it, a subclass or an instance has an attribute that would never be used."""

    _never_used = {}  # name: what to do instead

    def __init_subclass__(cls, **options):
        super().__init_subclass__(**options)
        cls._refuse(cls)

    @classmethod
    def _refuse(cls, x):
        """Raise for x, an instance or the class. A class is searched without __getattr__, which objects that stand in
        for a missing package have for every name."""
        for name, instead in cls._never_used.items():
            if inspect.getattr_static(x, name, None) is not None if isinstance(x, type) else hasattr(x, name):
                raise TypeError(f"{cls.__name__}.{name} would never be used; {instead}")
