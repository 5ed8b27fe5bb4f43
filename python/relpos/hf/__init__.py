"""Run models of Hugging Face transformers with attn_implementation="relpos" on a CPU.

    >>> import relpos.hf                                                                          # doctest: +SKIP
    >>> model = transformers.AutoModel.from_pretrained(name, attn_implementation="relpos")        # doctest: +SKIP

Importing this module registers the implementation. A model uses it only if you load the model with it or switch the
model to it. Models that get their attention function from transformers can use it, except some, for which loading
raises Refused. A bias or a four-axis mask that is already an array is used as given. relpos creates no N×N mask for
padding, causal masks, sliding windows and packed sequences, and no N×N bias for the models of docs/hf.md. The program
tools/hf_models.py compares each model type with its own attention; docs/hf-models.md has the results.

torch.compile compiles a model to one graph if it does so with eager attention, including a decoding step with a static
cache. torch.autocast, torch.jit.trace and gradient checkpoints work as usual. The weights of output_attentions have
gradients. transformers refuses continuous batching
(generate_batch).

If relpos cannot replace the attention of a model, loading or switching the model raises an error. If a model does not
use the attention functions of transformers at all, such as a wrapper of another library's model, relpos warns. A query
without keys gives zero; other implementations give the mean of masked values. Only padded queries have no keys, and
their results are not used.

SPDX-License-Identifier: Apache-2.0"""
import functools
import inspect
import sys
import warnings

import transformers

from .. import _versions

OLDEST, NEWEST = "5.22", "5.24"  # tested versions of transformers
_versions.need("transformers", transformers.__version__, OLDEST, "relpos.hf replaces methods that differ in older "
                                                                 "versions")
_versions.warn_of_newer("transformers", transformers.__version__, NEWEST,
                        "relpos.hf refuses a model whose code it does not recognize")
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel, masking_utils  # noqa: E402
from transformers.generation import utils as generation_utils  # noqa: E402

from ._adapters import ADAPTERS  # noqa: E402
from ._attention import attention  # noqa: E402
from ._guard import Drift, Replacements, compare_config, uses_interface  # noqa: E402
from ._looks import reason  # noqa: E402
from ._masks import NAME, Mask, TracedMask, mask  # noqa: E402

__all__ = ["NAME", "Mask", "Refused", "TracedMask", "attention", "mask"]


class Refused(ValueError):
    """The error for a model that cannot use relpos, because it computes its own attention or its code has changed."""


# Model types that are refused although the checks below accept their code. Self-attention of bridgetower sets
# is_causal=True although its mask is bidirectional; sdpa and relpos use is_causal if the mask is None, but eager
# attention ignores it. muse_glimmer_assistant adds context keys that its mask does not cover.
_DIFFERENT = frozenset(("bridgetower", "muse_glimmer_assistant"))


# ---------------------------------------------------------------------------------------------- adapters and refusals

def _adapter(module):
    """Return the adapter of a module of transformers, or None."""
    package, _, file = module.__name__.rpartition(".modeling_")
    return ADAPTERS.get(file) if package.startswith("transformers.models.") else None


def _adapt(module):
    """Apply the adapter of a module of transformers. Return the reason why the adapter does not fit, or None."""
    if "_relpos_drift" not in vars(module):
        adapter, module._relpos_drift = _adapter(module), None
        try:
            if adapter:
                _apply(module, adapter)
        except Drift as why:
            module._relpos_drift = str(why)
        except AttributeError as why:  # the module lacks a name that the adapter reads; nothing has been replaced yet
            module._relpos_drift = f"{why.obj.__name__} has no {why.name}"
    return module._relpos_drift


def _apply(module, adapter):
    """Replace functions of a module by those of an adapter, unless the module already gets its attention function from
    transformers."""
    if adapter.computes and uses_interface(Replacements(module).owner(adapter.computes)[2]):
        return
    compare_config(module, adapter.lacks)
    replacements = Replacements(module)
    adapter.adapt(module, replacements)
    replacements.apply()
    for name, x in list(vars(module).items()):
        if name.endswith("ATTENTION_CLASSES"):  # new models look up their attention class there
            x[NAME] = x["eager"]
        elif inspect.isclass(x) and issubclass(x, PreTrainedModel) and x.__module__ == module.__name__:
            # in every class, because transformers may have cached False in a subclass
            x._can_set_attn_implementation_cached_value = True


def _modules(*classes):
    """Return the modules of classes and of their bases."""
    names = dict.fromkeys(base.__module__ for cls in dict.fromkeys(classes) for base in cls.__mro__)
    return [sys.modules[name] for name in names if name in sys.modules]


def _refuse_drift(model, *classes):
    """Apply the adapters for the classes of a model. Raise Refused if one does not fit."""
    for why in filter(None, map(_adapt, _modules(*classes))):
        raise Refused(f'attn_implementation="{NAME}": {type(model).__name__} of transformers '
                      f'{transformers.__version__} differs from the code that relpos replaces '
                      f'({why}); use attn_implementation="eager", or transformers {OLDEST} to {NEWEST}')


def _refuse_unfit(model):
    """Raise Refused if a model computes its own attention and relpos has no replacement for it."""
    modules = _modules(*(cls for cls in type(model).__mro__ if issubclass(cls, PreTrainedModel)))
    fixed = any(name.endswith("ATTENTION_CLASSES") and isinstance(x, dict) and NAME not in x for module in modules
                for name, x in vars(module).items())
    lacks = any(adapter.lacks(model.config) for adapter in map(_adapter, modules) if adapter)
    if fixed or lacks or not model._can_set_attn_implementation() or model.config.model_type in _DIFFERENT:
        raise Refused(f'attn_implementation="{NAME}": {type(model).__name__} computes its own attention, and relpos '
                      f'has no replacement for it; '
                      'use attn_implementation="eager"')


def _refuse_looks(model, parts):
    """Raise Refused if a part of a model has code that relpos does not support and no adapter replaces."""
    for part in parts:
        module = sys.modules.get(type(part).__module__)
        if (module and module.__name__.startswith("transformers.models.") and not _adapter(module)
            and (why := reason(part))):
            raise Refused(f'attn_implementation="{NAME}": {type(model).__name__} has a {type(part).__name__}, and '
                          f'{why}, which relpos does not support; '
                          'use attn_implementation="eager"')


def _adopt(model):
    """Set the config of each module that has a replacement but no config to the config of its model."""
    for part in reversed([x for x in model.modules() if isinstance(x, PreTrainedModel)]):  # inner models first
        for x in part.modules():
            if getattr(type(x), "_asks_relpos", False) and not hasattr(x, "config"):
                x.config = part.config


def _warn_unused(model):
    """Warn if no module of a model gets its attention function from transformers, as in a wrapper of another library's
    model."""
    if not any(hasattr(sys.modules.get(type(x).__module__), "ALL_ATTENTION_FUNCTIONS")
               or getattr(type(x), "_asks_relpos", False)
               for x in model.modules()):
        warnings.warn(f'attn_implementation="{NAME}" changes nothing in {type(model).__name__}: the model does not use '
                      f'the attention '
                      'functions of transformers', stacklevel=4)


# ---------------------------------------------------------------------------------------------- registration

def _hook(name):
    """Return a decorator that makes a function replace the method `name` of PreTrainedModel. The function receives the
    original method as its second argument."""
    def decorate(function):
        original = getattr(PreTrainedModel, name)

        @functools.wraps(original)
        def method(self, *args, **kwargs):
            return function(self, original, *args, **kwargs)

        setattr(PreTrainedModel, name, method)
    return decorate


def _names_it(implementation):
    """Return true if an implementation, or a dictionary of implementations, names relpos."""
    return any(map(_names_it, implementation.values())) if isinstance(implementation, dict) else implementation == NAME


def _requested(config, implementation):
    """Return {id(config): implementation} that set_attn_implementation would assign to a config and its sub-configs."""
    named = implementation if isinstance(implementation, dict) else {}
    found = {id(config): named.get("", config._attn_implementation) if isinstance(implementation, dict)
             else implementation}
    for key in config.sub_configs:
        if (part := getattr(config, key, None)) is not None:
            found |= _requested(part, named.get(key, part._attn_implementation) if isinstance(implementation, dict)
                                else implementation)
    return found


def _reached(module, requested, whole, inside=False):
    """Yield the modules of a model that will use relpos. `requested` is {id(config): implementation}; an inner model
    whose config is not in it gets the implementation `whole`."""
    config = getattr(module, "config", None)
    if id(config) in requested or isinstance(module, PreTrainedModel):
        inside = requested.get(id(config), whole) == NAME
    if inside:
        yield module
    for part in module.children():
        yield from _reached(part, requested, whole, inside)


def _register():
    if NAME in AttentionInterface():
        return
    AttentionInterface.register(NAME, attention)
    AttentionMaskInterface.register(NAME, mask)

    # called for a new model before its parts exist, and for each part when a model is switched
    @_hook("get_correct_attn_implementation")
    def get_correct_attn_implementation(self, original, *args, **kwargs):
        if NAME in (*args, *kwargs.values()):
            _refuse_drift(self, type(self))
            _refuse_unfit(self)
        return original(self, *args, **kwargs)

    @_hook("post_init")
    def post_init(self, original):
        if self.config._attn_implementation == NAME:
            configs = {id(x.config): x.config._attn_implementation for x in self.modules()
                       if isinstance(x, PreTrainedModel)}
            parts = list(_reached(self, configs, NAME))
            _refuse_drift(self, *map(type, parts))
            _refuse_looks(self, parts)
            _adopt(self)
            _warn_unused(self)
        return original(self)

    @_hook("set_attn_implementation")
    def set_attn_implementation(self, original, attn_implementation, *args, **kwargs):
        if not _names_it(attn_implementation):
            return original(self, attn_implementation, *args, **kwargs)
        requested = _requested(self.config, attn_implementation)
        parts = list(_reached(self, requested, requested[id(self.config)]))
        _refuse_drift(self, *map(type, parts))
        for part in parts:
            if isinstance(part, PreTrainedModel):
                _refuse_unfit(part)
        _refuse_looks(self, parts)
        found = original(self, attn_implementation, *args, **kwargs)
        _adopt(self)
        if attn_implementation == NAME:
            _warn_unused(self)
        return found

    @functools.wraps(masking_utils.create_masks_for_generate)
    def create_masks_for_generate(config, *args, **kwargs):
        """Return the padding mask unchanged. torch.compile cannot trace a step that receives a Mask, so the model
        creates the Mask itself."""
        if config.get_text_config()._attn_implementation == NAME and "attention_mask" in kwargs:
            return kwargs["attention_mask"]
        return masking_utils.create_masks_for_generate(config, *args, **kwargs)

    generation_utils.create_masks_for_generate = create_masks_for_generate


_register()
