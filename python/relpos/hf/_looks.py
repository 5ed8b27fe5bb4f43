"""Find code in models of transformers that relpos does not support: arguments of the attention function, and
computations with a mask. Such a model is refused when it is loaded or switched, not at its first forward pass.

SPDX-License-Identifier: Apache-2.0"""
import ast
import functools
import inspect
import re
import sys
from typing import NamedTuple

from ._attention import KNOWN, WITHOUT_EFFECT

_PASSED_ON = {"query", "key", "value", "attention_mask"}
# methods of a Mask, and of a dictionary of masks
_HARMLESS = {"contiguous", "to", "clone", "detach", "size", "dim", "get"}
_NAMES = {"attention_mask", "attn_mask"}
_MAKERS = {"create_causal_mask", "create_bidirectional_mask", "create_sliding_window_causal_mask",
           "create_chunked_causal_mask",
           "create_bidirectional_sliding_window_mask"}  # functions of transformers.masking_utils that return a Mask


class _Class(NamedTuple):
    tree: ast.ClassDef
    names: frozenset  # names in its code


@functools.lru_cache
def _classes(module_name):
    """Return the classes of a module by name; an empty dictionary if its source cannot be read."""
    try:
        body = ast.parse(inspect.getsource(sys.modules[module_name])).body
    except (OSError, TypeError, KeyError):
        return {}
    return {x.name: _Class(x, frozenset(y.id for z in x.body for y in ast.walk(z) if isinstance(y, ast.Name)))
            for x in body if isinstance(x, ast.ClassDef)}


@functools.lru_cache
def _reasons(cls):
    classes = _classes(cls.__module__)
    return tuple(_of_class(classes[cls.__name__].tree, classes)) if cls.__name__ in classes else ()


def reason(module):
    """Return the reason why relpos does not support a torch.nn.Module of transformers, or None."""
    return next((why for why, part in _reasons(type(module)) if part is None
                 or getattr(module, part, None) is not None), None)


def _of_class(scope, classes):
    """Yield (reason, attribute) for each unsupported computation of a class. If `attribute` is None, the reason applies
    to every module of the class; otherwise it applies to modules in which the attribute of this name is not None."""
    methods = [x for x in scope.body if isinstance(x, ast.FunctionDef)]
    calls = [(method, call) for method in methods for call in ast.walk(method) if _calls_attention(call)]
    for method, call in calls:
        for keyword in call.keywords:
            if keyword.arg and keyword.arg not in KNOWN | WITHOUT_EFFECT | _PASSED_ON:
                yield f"it passes its attention function the argument {keyword.arg}", _without(method, keyword.value)
    gets_masks = _gets_masks(scope, classes)
    for method in methods:
        masks = _made_masks(method)
        if gets_masks and not masks:
            masks = {x.arg for x in method.args.args if x.arg in _NAMES
                     and (calls or scope.name.endswith("Attention") or _of_attention(
scope, method, x.arg, classes))}
        for use in _uses(method, masks):
            yield f"it computes with its mask ({ast.unparse(use)})", None
    if gets_masks and not calls and scope.name.endswith("Attention") and "softmax(" in ast.unparse(scope):
        yield "it computes attention itself", None


def _of_attention(scope, method, mask, classes):
    """Return true if the mask of a method is also passed to attention, which means that it is not a mask of tokens.
    Either the method passes it, or a class that contains `scope` passes one mask both to attention and to `scope`."""
    def given(method, parts):  # names of the masks that a method passes to the named parts of self
        return {y.id for x in ast.walk(method) if isinstance(x, ast.Call)
                and ast.unparse(x.func).removeprefix("self.") in parts
                for y in (*x.args, *(k.value for k in x.keywords)) if isinstance(y, ast.Name) and y.id in _NAMES}

    def parts(scope, wanted):  # attributes assigned as self.name = Class(...), where `wanted` accepts the class
        return {x.targets[0].attr for x in ast.walk(scope) if isinstance(x, ast.Assign)
                and isinstance(x.targets[0], ast.Attribute)
                and isinstance(x.value, ast.Call) and isinstance(x.value.func, ast.Name) and wanted(x.value.func.id)}

    def is_attention(name):
        return name.endswith("Attention")

    if mask in given(method, parts(scope, is_attention)):
        return True
    return any(given(x, parts(owner, is_attention)) & given(x, parts(owner, lambda name: name == scope.name))
               for owner, names in classes.values() if scope.name in names for x in owner.body
               if isinstance(x, ast.FunctionDef))


def _gets_masks(scope, classes):
    """Return true if a class that creates masks with transformers uses this class, directly or through other
    classes."""
    found, left = set(), [scope.name]
    while left:
        name = left.pop()
        for outer, (_, names) in classes.items():
            if name in names and outer not in found:
                if names & _MAKERS:
                    return True
                found.add(outer)
                left.append(outer)
    return False


def _without(method, value):
    """Return "part" if a method assigns the variable `value` under "if self.part is not None:", otherwise None."""
    for x in ast.walk(method):
        if isinstance(x, ast.If) and isinstance(value,
                                                ast.Name) and (part := re.fullmatch(r"self\.(\w+) is not None",
                                                                                    ast.unparse(x.test))):
            if any(isinstance(y, ast.Assign) and ast.unparse(y.targets[0]) == value.id for y in x.body):
                return part[1]
    return None


def _calls_attention(node):
    return isinstance(node, ast.Call) and isinstance(node.func,
                                                     ast.Name) and node.func.id.endswith("attention_interface")


def _makes_mask(node):
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _MAKERS


def _made_masks(method):
    """Return the variables of a method that contain masks of transformers, or dictionaries of such masks."""
    return {x.targets[0].id for x in ast.walk(method) if isinstance(x, ast.Assign)
            and isinstance(x.targets[0], ast.Name)
            and (_makes_mask(x.value) or isinstance(x.value, ast.Dict) and any(map(_makes_mask, x.value.values)))}


def _uses(method, names):
    """Iterate over the nodes of a method that compute with the masks in the variables `names`, after the method first
    makes a mask and outside branches for other attention implementations."""
    made = [x.lineno for x in ast.walk(method) if _makes_mask(x)]
    first = min(made, default=0)
    parameters = {x.arg for x in method.args.args}

    def is_mask(node):
        if isinstance(node, ast.Subscript) and isinstance(node.slice,
                                                          ast.Constant) and isinstance(node.slice.value, str):
            node = node.value  # a mask in a dictionary
        return isinstance(node, ast.Name) and node.id in names and (node.lineno > first or not made)

    def visit(node):
        if isinstance(node, ast.If) and ("_attn_implementation" in ast.unparse(node.test)
                                         or "flash" in ast.unparse(node.test)):
            for x in node.orelse:
                yield from visit(x)
            return
        if isinstance(node, ast.BinOp) and (is_mask(node.left)
                                            or is_mask(node.right)) and not isinstance(node.op, ast.Add):
            yield node
        elif isinstance(node, ast.UnaryOp) and not isinstance(node.op, ast.Not) and is_mask(node.operand):
            yield node
        elif (isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and is_mask(node.value)
              and not _is_key(node.slice)):
            yield node
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if is_mask(node.func.value) and node.func.attr not in _HARMLESS:
                yield node
            elif ast.unparse(node.func).split(".")[0] in ("torch", "F", "nn") and any(
                    map(is_mask,
                        (y for x in node.args for y in (x.elts if isinstance(x, (ast.List, ast.Tuple)) else (x,))))):
                yield node
        for x in ast.iter_child_nodes(node):
            yield from visit(x)

    return visit(method) if names else iter(())


def _is_key(index):
    """Return true if an index may be the key of a dictionary of masks, or only limits the keys of a mask, as in mask[:,
    :, :, :n]."""
    if not isinstance(index, (ast.Tuple, ast.Slice)):
        return True
    return isinstance(index, ast.Tuple) and len(index.elts) == 4 and all(
        isinstance(x, ast.Slice) and x.lower is None
        for x in index.elts) and all(x.upper is None for x in index.elts[:3])
