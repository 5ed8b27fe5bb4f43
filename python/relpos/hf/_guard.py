"""Replace functions of a module of transformers, if they are those that the replacements were written for.

SPDX-License-Identifier: Apache-2.0"""
import functools
import inspect
import re
from collections.abc import Callable
from typing import NamedTuple

# Parameters that some releases or classes name otherwise, with the same meaning: name there -> name here.
RENAMED = {"past_key_values": "cache",  # since 5.24
           "hidden_state": "hidden_states"}  # of ViTDet
_SET_HERE = {"config", "training", "wants_weights"}  # attributes that torch.nn.Module or relpos gives


class Drift(Exception):
    """A module of transformers is not the one that an adapter was written for."""


class Adapter(NamedTuple):
    adapt: Callable  # of a module and its Replacements
    computes: str = None  # the class that it keeps from computing attention itself; nothing is replaced where that class uses the interface
    lacks: Callable = lambda config: False  # whether a model with this config has attention without a replacement


class Replacements:
    """The replacements of an adapter in a module. Nothing changes before apply(), which compares all of them first."""

    def __init__(self, module):
        self.module, self.found = module, []

    def __call__(self, path, when, passes=False):
        """Decorate what takes the place of a method "Class.name" or a function "name" in the calls of which `when` is true. It gets the
        original after its first argument. passes: it hands keywords that it does not name to the original."""
        def decorate(function):
            self.found.append((path, when, function, passes))
            return function
        return decorate

    def owner(self, path):
        """The class or module that has what a path names, its name there, and the original."""
        owner, (*cls, name) = self.module, path.split(".")
        for part in cls:
            owner = getattr(owner, part, None)
        found = any(name in vars(cls) for cls in owner.__mro__ if cls.__module__.startswith("transformers.")) if inspect.isclass(owner) else (
            hasattr(owner, name))  # torch.nn.Module has a forward too
        if not found:
            raise Drift(f"{path} is missing")
        return owner, name, getattr(owner, name)

    def apply(self):
        for path, _, function, passes in self.found:
            owner, _, original = self.owner(path)
            _compare_parameters(path, original, function, passes)
            _compare_attributes(self.module, path, owner, original, function)
        for path, when, function, _ in self.found:
            owner, name, original = self.owner(path)
            setattr(owner, name, _method(original, function, when))
            if inspect.isclass(owner):
                owner._asks_relpos = True


def uses_interface(cls):
    """Return true if the code of a class gets its attention function from transformers."""
    return "ALL_ATTENTION_FUNCTIONS" in _source(cls)


def _method(original, function, when):
    renamed = {old: new for old, new in RENAMED.items() if new in inspect.signature(function).parameters}

    @functools.wraps(original)
    def method(self, *args, **kwargs):
        if not when(self, *args, **kwargs):
            return original(self, *args, **kwargs)
        if renamed:
            kwargs = {renamed.get(name, name): value for name, value in kwargs.items()}
        return function(self, original, *args, **kwargs)

    return method


def _named(function):
    """Names of the parameters of a function that have names, and whether it takes any arguments by place beside them."""
    parameters = inspect.signature(function).parameters.values()
    names = [x.name for x in parameters if x.kind not in (x.VAR_KEYWORD, x.VAR_POSITIONAL)]
    return names, any(x.kind == x.VAR_POSITIONAL for x in parameters)


def _compare_parameters(path, original, function, passes):
    (_, *theirs), _ = _named(original)
    (_, _, *ours), any_place = _named(function)
    theirs, ours = ([RENAMED.get(name, name) for name in names] for names in (theirs, ours))
    for name in ours:
        if name not in theirs:
            raise Drift(f"{path} has no parameter {name}")
    for name in theirs:
        if name not in ours and not passes and not any_place:
            raise Drift(f"{path} has a parameter {name}, which is new")
    if not any_place and [name for name in theirs if name in ours] != ours or passes and theirs[:len(ours)] != ours:
        raise Drift(f"{path} has its parameters in another order: {', '.join(theirs)}")


def _source(x):
    try:
        return inspect.getsource(x)
    except (OSError, TypeError):
        raise Drift(f"the source of {getattr(x, '__qualname__', x)} cannot be read") from None


def _reads(function):
    """The attributes of self and of `module` that a replacement reads or sets, with the functions of self that it calls."""
    held = {**inspect.getclosurevars(function).globals, **inspect.getclosurevars(function).nonlocals}
    helpers = [x for x in held.values() if inspect.isfunction(x) and list(inspect.signature(x).parameters)[:1] == ["self"]]
    source = "".join(map(_source, (function, *helpers)))
    return set(re.findall(r"\bself\.(\w+)", source)), set(re.findall(r"\bmodule\.(\w+)", source))


def _compare_attributes(module, path, owner, original, function):
    of_self, of_module = _reads(function)
    if inspect.isclass(owner):
        has = set(dir(owner)).union(*(re.findall(r"(?:\bself\.|\bregister_\w+\(\s*['\"])(\w+)", _source(cls)) for cls in owner.__mro__
                                      if cls.__module__.startswith("transformers.models.")))
    else:
        has = set(re.findall(r"\bself\.(\w+)", _source(module)))
    for name in sorted(of_self - _SET_HERE):
        if name not in has:
            raise Drift(f"{path.rpartition('.')[0] or path} has no attribute {name}")
    for name in sorted(of_module):
        if not hasattr(module, name):
            raise Drift(f"{module.__name__} has no {name}")
