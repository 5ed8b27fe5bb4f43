"""Check that the replacements of an adapter fit the code of a transformers module, then apply them.

A replacement must have the parameters of the original in the same order, and the class must have each attribute of
self that the replacement uses. A new parameter counts as a difference even if the replacement accepts arbitrary
keywords: one that ignored a renamed cache would decode with a single key and give no error.

SPDX-License-Identifier: Apache-2.0"""
import ast
import functools
import inspect
import sys
from collections.abc import Callable
from types import ModuleType
from typing import NamedTuple

import torch

# Parameters whose name differs between releases or classes: name in transformers -> name in the adapters.
RENAMED = {"past_key_values": "cache",  # since 5.24
           "hidden_state": "hidden_states"}  # in ViTDet
_SET_HERE = {"config", "training", "wants_weights", "tokens"}  # attributes that torch.nn.Module or relpos sets


class Drift(Exception):
    """The error for an adapter that does not fit its module of transformers."""


class Adapter(NamedTuple):
    adapt: Callable  # adds replacements: adapt(module, replacements)
    # class that computes its own attention; if it uses the attention interface instead, the adapter is skipped
    computes: str = None
    lacks: Callable = lambda config: False  # true if a model with this config needs attention that has no replacement


class Replacement(NamedTuple):
    """The arguments of Replacements.__call__, and the decorated function."""
    path: str
    when: Callable
    function: Callable
    passes: bool
    of: str


class Replacements:
    """The replacements of an adapter in a module. apply() checks all of them before it changes the module."""

    def __init__(self, module):
        self.module, self.found = module, []

    def __call__(self, path, when, passes=False, of=None):
        """Return a decorator for the replacement of a method "Class.name" or a function "name". The replacement runs if
        `when` returns true for the arguments of the call. It receives the original function as its second argument.

        Set `passes` if the replacement accepts unnamed keywords and passes them to the original. For a function, `of`
        is the name of the class of its first argument."""
        def decorate(function):
            self.found.append(Replacement(path, when, function, passes, of))
            return function
        return decorate

    def owner(self, path):
        """Return (owner, name, function) of a path "Class.name" or "name". The owner is the class, or the module. Raise
        Drift if it is missing."""
        owner, (*cls, name) = self.module, path.split(".")
        for part in cls:
            owner = getattr(owner, part, None)
        found = any(name in vars(cls) for cls in owner.__mro__
                    if cls.__module__.startswith("transformers.")) if inspect.isclass(owner) else (
hasattr(owner, name))  # hasattr is not enough for a class, since torch.nn.Module has a forward too
        if not found:
            raise Drift(f"{path} is missing")
        return owner, name, getattr(owner, name)

    def apply(self):
        """Check the parameters and attributes of all replacements, then replace the functions."""
        for path, when, function, passes, of in self.found:
            owner, _, original = self.owner(path)
            _compare_parameters(path, original, function, passes)
            first = getattr(self.module, of) if of else owner if inspect.isclass(owner) else None
            _compare_attributes(self.module, when, first)
            _compare_attributes(self.module, function, first)
        for path, when, function, *_ in self.found:
            owner, name, original = self.owner(path)
            setattr(owner, name, _method(original, function, when))
            if inspect.isclass(owner):
                owner._asks_relpos = True


def uses_interface(cls):
    """Return true if the code of a class gets its attention function from transformers."""
    return "ALL_ATTENTION_FUNCTIONS" in _source(cls)


def _method(original, function, when):
    """Return a function that calls the replacement if `when` returns true, and the original otherwise."""
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
    """Return the names of the parameters of a function without *args and **kwargs, and true if it has *args."""
    parameters = inspect.signature(function).parameters.values()
    names = [x.name for x in parameters if x.kind not in (x.VAR_KEYWORD, x.VAR_POSITIONAL)]
    return names, any(x.kind == x.VAR_POSITIONAL for x in parameters)


def _compare_parameters(path, original, function, passes):
    """Raise Drift if the parameters of a replacement do not match those of the original."""
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


# ---------------------------------------------------------------------------------------------- attributes that
# adapters read

@functools.lru_cache
def _tree(module):
    """Return the syntax tree of a module."""
    return ast.parse(_source(module))


class _Config(NamedTuple):
    """The type of a config. It is assumed to have every attribute that the module reads from its configs, and no
    others."""
    module: ModuleType


class _List(NamedTuple):
    """The type of a torch.nn.ModuleList."""
    of: frozenset  # types of its elements


@functools.lru_cache
def _assigned(cls):
    """Return {name: values} of the attributes that a class and its bases have. The values are the expressions assigned
    to self.name, each as (expression, module of the expression)."""
    found = {name: [] for name in (*dir(cls), *_SET_HERE)}
    for base in cls.__mro__:
        module = sys.modules.get(base.__module__)
        if base is torch.nn.Module or not base.__module__.startswith(("transformers.models.", "torch.nn.modules.")):
            continue
        scope = next((x for x in _tree(module).body if isinstance(x, ast.ClassDef) and x.name == base.__name__), None)
        for x in ast.walk(scope) if scope else ():
            if isinstance(x, (ast.Assign, ast.AnnAssign)):
                for target in x.targets if isinstance(x, ast.Assign) else (x.target,):
                    if isinstance(target, ast.Attribute) and ast.unparse(target.value) == "self":
                        found.setdefault(target.attr, []).append((x.value, module))
            elif isinstance(x, ast.Attribute) and isinstance(x.ctx, ast.Store) and ast.unparse(x.value) == "self":
                found.setdefault(x.attr, [])
            elif (isinstance(x, ast.Call) and isinstance(x.func, ast.Attribute)
                  and x.func.attr in ("register_buffer", "register_parameter")):
                if x.args and isinstance(x.args[0], ast.Constant):
                    found.setdefault(x.args[0].value, [])
    return found


@functools.lru_cache
def _config_names(module):
    """Return the names that a module reads from its configs."""
    def is_config(x):
        return (isinstance(x, ast.Name) and x.id.endswith("config") or isinstance(x, ast.Attribute)
                and x.attr.endswith("config"))

    found = {"_attn_implementation"}
    for x in ast.walk(_tree(module)):
        if isinstance(x, ast.Attribute) and is_config(x.value):
            found.add(x.attr)
        elif (isinstance(x, ast.Call) and ast.unparse(x.func) in _BY_NAME and is_config(x.args[0])
              and isinstance(x.args[1], ast.Constant)):
            found.add(x.args[1].value)
    return found


_BY_NAME = "getattr", "hasattr", "setattr", "delattr"


def _types_of_value(value, module):
    """Return the types that an expression in a module may have: subclasses of torch.nn.Module, and _List for
    torch.nn.ModuleList."""
    if isinstance(value, ast.IfExp):
        return _types_of_value(value.body, module) | _types_of_value(value.orelse, module)
    if not isinstance(value, ast.Call):
        return frozenset()
    found = module
    for name in ast.unparse(value.func).split("."):
        found = getattr(found, name, None)
    if found is torch.nn.ModuleList and value.args:
        elements = [value.args[0].elt] if isinstance(value.args[0],
                                                     ast.ListComp) else getattr(value.args[0], "elts", [])
        return frozenset((_List(frozenset().union(*(_types_of_value(x, module) for x in elements))),))
    return frozenset((found,)) if inspect.isclass(found) and issubclass(found, torch.nn.Module) else frozenset()


def _types_of_attribute(owner, name, module):
    """Return the possible types of attribute `name` of `owner`, in the format of _types_of_value."""
    if isinstance(owner, ModuleType):
        found = getattr(owner, name, None)
        return frozenset((found,)) if inspect.isclass(found) else frozenset()
    if not inspect.isclass(owner):
        return frozenset()
    if name == "config":
        return frozenset((_Config(module),))
    return frozenset().union(*(_types_of_value(*x) for x in _assigned(owner).get(name, ())))


def _require(owner, name):
    """Raise Drift if the module `owner`, or objects of the class `owner`, have no attribute `name`; for a _Config, if
    its module reads no such name from its configs."""
    if isinstance(owner, ModuleType):
        if not hasattr(owner, name):
            raise Drift(f"{owner.__name__} has no {name}")
    elif isinstance(owner, _Config):
        if name not in _config_names(owner.module):
            raise Drift(f"{owner.module.__name__} reads no {name} from its config")
    elif inspect.isclass(owner) and name not in _assigned(owner):
        raise Drift(f"{owner.__name__} has no attribute {name}")


def _definition(function):
    """Return the syntax tree of a function or a lambda."""
    line = function.__code__.co_firstlineno
    kind = ast.Lambda if function.__name__ == "<lambda>" else ast.FunctionDef
    for x in ast.walk(_tree(sys.modules[function.__module__])):
        if isinstance(x, kind) and line == (x.decorator_list[0] if getattr(x, "decorator_list", ()) else x).lineno:
            return x
    raise LookupError(f"{function.__qualname__} is not in the file of its module")


class _Reader(ast.NodeVisitor):
    """Check that every attribute that a function of an adapter reads or sets exists. `types` maps the function's
    variables to their possible types. Called functions of the same file are checked too."""

    def __init__(self, module, function, types):
        closure = inspect.getclosurevars(function)
        self.module, self.function = module, function
        self.held = {**closure.globals, **closure.nonlocals}
        self.types = {name: frozenset((module,)) for name, x in self.held.items() if x is module} | types
        definition = _definition(function)
        for x in definition.body if isinstance(definition.body, list) else [definition.body]:
            self.visit(x)

    def of(self, node):
        """Return the types that an expression may have, or an empty set if they are unknown."""
        if isinstance(node, ast.Name):
            return self.types.get(node.id, frozenset())
        if isinstance(node, ast.Attribute):
            return frozenset().union(*(_types_of_attribute(x, node.attr, self.module) for x in self.of(node.value)))
        if isinstance(node, ast.Subscript):
            return frozenset().union(*(x.of for x in self.of(node.value) if isinstance(x, _List)))
        return frozenset()

    def bind(self, target, values):
        """Record the types of a variable that is assigned one of the expressions `values`; a tuple of variables is
        assigned tuples."""
        if isinstance(target, ast.Name):
            self.types[target.id] = frozenset().union(*map(self.of, values))
        elif isinstance(target, ast.Tuple):
            tuples = [x.elts for x in values if isinstance(x, ast.Tuple) and len(x.elts) == len(target.elts)]
            for part, *values in zip(target.elts, *tuples):
                self.bind(part, values)

    def visit_Attribute(self, node):
        for owner in self.of(node.value):
            _require(owner, node.attr)
        self.generic_visit(node)

    def visit_Assign(self, node):
        self.generic_visit(node)
        for target in node.targets:
            self.bind(target, [node.value])

    def visit_For(self, node):
        self.bind(node.target, getattr(node.iter, "elts", []))
        self.generic_visit(node)

    def visit_GeneratorExp(self, node):
        for x in node.generators:
            self.bind(x.target, getattr(x.iter, "elts", []))
        self.generic_visit(node)

    visit_ListComp = visit_GeneratorExp

    def visit_Call(self, node):
        if isinstance(node.func, ast.Name):
            if node.func.id in _BY_NAME and (owners := self.of(node.args[0])):
                if not isinstance(node.args[1], ast.Constant):
                    raise TypeError(f"{self.function.__qualname__} reads an attribute by a computed name, which cannot "
                                    "be checked: "
                                    f"{ast.unparse(node)}")
                for owner in owners:
                    _require(owner, node.args[1].value)
            function = self.held.get(node.func.id)
            if inspect.isfunction(function) and function.__module__ == self.function.__module__:
                names = list(inspect.signature(function).parameters)
                given = {**dict(zip(names, node.args)), **{x.arg: x.value for x in node.keywords}}
                types = {name: found for name, x in given.items() if (found := self.of(x))}
                if types:
                    _Reader(self.module, function, types)
        self.generic_visit(node)


def _compare_attributes(module, function, first):
    """Check the attributes that a function reads or sets. `first` is the type of its first argument, or None."""
    name = next(iter(inspect.signature(function).parameters), None)
    _Reader(module, function, {name: frozenset((first,))} if first else {})


def compare_config(module, lacks):
    """Raise Drift if `lacks`, a function of a config, reads a name that the module does not read from its configs."""
    _compare_attributes(module, lacks, _Config(module))
