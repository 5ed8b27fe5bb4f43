"""Check that relpos.hf refuses a model whose code changed, and only that model. The tests copy modules of transformers
with one change each. Skipped without transformers.

SPDX-License-Identifier: Apache-2.0"""
import ast
import contextlib
import functools
import importlib
import importlib.util
import re
import subprocess
import sys
import warnings

import pytest

transformers = pytest.importorskip("transformers")
import relpos.hf
import torch
import test_hf
import test_hf_sound
from relpos.hf import _adapters, _guard
from relpos.hf._adapters import ADAPTERS

SINCE_5_24 = {"inkling2", "inkling2_loop"}
FOLDERS = {"donut_swin": "donut", "maskformer_swin": "maskformer"}


def of_transformers(file):
    return importlib.import_module(f"transformers.models.{FOLDERS.get(file, file)}.modeling_{file}")


def applies(file):
    """Return true if the adapter replaces code in the installed release of transformers."""
    adapter = ADAPTERS[file]
    if importlib.util.find_spec(f"transformers.models.{FOLDERS.get(file, file)}") is None:
        return False  # a newer model
    return not (adapter.computes and _guard.uses_interface(getattr(of_transformers(file), adapter.computes)))


def copied(file, change, monkeypatch, tmp_path):
    """Replace a module of transformers by a copy whose syntax tree `change` has modified, and return the copy."""
    original = of_transformers(file)
    tree = ast.parse(_guard._source(original))
    change(tree)
    path = tmp_path / f"modeling_{file}.py"
    path.write_text(ast.unparse(tree))
    spec = importlib.util.spec_from_file_location(original.__name__, path)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, original.__name__, module)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        spec.loader.exec_module(module)
    return module


def replacements(file):
    """Return [(path, replacement, passes)] of an adapter in the installed release."""
    found = _guard.Replacements(of_transformers(file))
    ADAPTERS[file].adapt(found.module, found)
    return [(x.path, x.function, x.passes) for x in found.found]


def definition(tree, path):
    """Return the syntax trees of the class and the function of a path; for a path without a class, the whole tree and
    the function. If the function is inherited, return those of the base class."""
    *cls, name = path.split(".")
    scope = next(x for x in tree.body if isinstance(x, ast.ClassDef) and x.name == cls[0]) if cls else tree
    for x in scope.body:
        if isinstance(x, ast.FunctionDef) and x.name == name:
            return scope, x
    return definition(tree, f"{scope.bases[0].id}.{name}")


def renamed_function(path, function):
    """Return a change that renames a replaced function everywhere in its module, and a pattern for the expected
    error."""
    name = path.rpartition(".")[2]

    def change(tree):
        for x in ast.walk(tree):
            for field in ("attr", "id", "name"):
                if getattr(x, field, None) == name and isinstance(x, (ast.Attribute, ast.Name, ast.FunctionDef)):
                    setattr(x, field, "other_" + name)
    # "has no parameter" if the adapter mistakes the module for an older release
    return change, rf"\b{name}\b|has no parameter"


def dropped_parameter(path, function):
    name = own_parameters(function)[-1]

    def change(tree):
        arguments = definition(tree, path)[1].args
        at = next(n for n, x in enumerate(arguments.args) if _guard.RENAMED.get(x.arg, x.arg)
                  == _guard.RENAMED.get(name, name))
        first = len(arguments.args) - len(arguments.defaults)
        if at >= first:
            del arguments.defaults[at - first]
        del arguments.args[at]
    return change, f"{path} has no parameter {_guard.RENAMED.get(name, name)}"


def added_parameter(path, function):
    def change(tree):
        arguments = definition(tree, path)[1].args
        arguments.args.append(ast.arg("another"))
        arguments.defaults.append(ast.Constant(None))
    return change, f"{path} has a parameter another, which is new"


def own_parameters(function):
    return _guard._named(function)[0][2:]


def drifts():
    """Yield (file, kind of change, path). Every replaced function is renamed; in one function of each adapter, a
    parameter is removed or added."""
    for file in ADAPTERS:
        if not applies(file):
            continue
        every = replacements(file)
        for path, _, _ in every:
            yield file, renamed_function, path
        own = [(path, function) for path, function, passes in every if not passes and not _guard._named(function)[1]
               and own_parameters(function)]
        for path, _ in own[-1:]:
            yield file, dropped_parameter, path
            yield file, added_parameter, path


@pytest.mark.parametrize("file, kind, path", list(drifts()), ids=lambda x: getattr(x, "__name__", x))
def test_a_changed_module_is_refused_with_the_reason(file, kind, path, monkeypatch, tmp_path):
    function = next(function for at, function, _ in replacements(file) if at == path)
    change, said = kind(path, function)
    module = copied(file, change, monkeypatch, tmp_path)
    why = relpos.hf._adapt(module)
    assert why is not None
    assert re.search(said, why), why
    assert not any(hasattr(x, "__wrapped__") and x.__module__ == "relpos.hf._guard"
                   for x in vars(module).values()), "nothing is replaced"


# ---------------------------------------------------------------------------------------------- every attribute that an
# adapter reads

@contextlib.contextmanager
def recording():
    """Record, as {(type, name)}, the attributes of modules and configs that the code of the adapters reads or sets
    while a model runs."""
    found = set()

    def recorded(original):
        def access(self, name, *value):
            if sys._getframe(1).f_code.co_filename == _adapters.__file__:
                found.add((type(self), name))
            return original(self, name, *value)
        return access

    with pytest.MonkeyPatch.context() as patch:
        for cls in (torch.nn.Module, transformers.PreTrainedConfig):
            for method in ("__getattribute__", "__setattr__"):
                patch.setattr(cls, method, recorded(getattr(cls, method)))
        yield found


def mpt():
    model, inputs, _ = test_hf.ADAPTED["Mpt"]()
    return model, {**inputs, "use_cache": True}


def bloom():
    return test_hf.made(transformers.BloomModel, transformers.BloomConfig(vocab_size=60, hidden_size=48, n_head=6,
                                                                          n_layer=1, pretraining_tp=2)), (
dict(input_ids=IDS))


def swin():
    return test_hf.made(transformers.SwinModel,
                        transformers.SwinConfig(**test_hf.SWIN)), test_hf.vision("Swinv2", **test_hf.SWIN)[1]


def t5(name, **more):
    return test_hf.t5(name, **more), dict(input_ids=IDS, decoder_input_ids=IDS)


def deberta(**more):
    return test_hf.made(transformers.DebertaV2Model,
                        transformers.DebertaV2Config(**test_hf.DEBERTA, **more)), dict(input_ids=IDS)


def pix2struct():
    text = dict(vocab_size=60, hidden_size=32, d_kv=8, d_ff=48, num_layers=1, num_heads=4)
    config = transformers.Pix2StructConfig(text_config=text)
    return test_hf.made(transformers.Pix2StructTextModel, config.text_config), dict(input_ids=IDS)


IDS = test_hf.IDS[:2]
MODELS = {  # file: models that together run every branch of its adapter
    **{file: [lambda name=name: t5(name)] for file, name in (
        ("t5", "T5"), ("mt5", "MT5"), ("umt5", "UMT5"), ("switch_transformers", "SwitchTransformers"),
        ("longt5", "LongT5"),
        ("pop2piano", "Pop2Piano"))},
    "pix2struct": [pix2struct], "swin": [swin], "beit": ["Beit"], "bloom": [bloom],
    "mpnet": ["MPNet"], "layoutlmv3": ["LayoutLMv3"], "mpt": ["Mpt", mpt], "falcon": ["Falcon", "Falcon, ALiBi"],
    "gptj": ["GPTJ"],
    "codegen": ["CodeGen"],
    "roformer": ["RoFormer", "RoFormer, values too"], "swinv2": ["Swinv2"], "swin2sr": ["Swin2SR"],
    "donut_swin": ["DonutSwin"],
    "maskformer_swin": ["MaskFormerSwin"], "clap": ["ClapAudio"], "vitdet": ["VitDet"], "sam": ["Sam"],
    "sam_hq": ["SamHQ"],
    "siglip2": ["Siglip2"], "deberta": ["Deberta"], "wav2vec2_conformer": ["Wav2Vec2Conformer"], "wavlm": ["WavLM"],
    "deberta_v2": [lambda: deberta(pos_att_type=["c2p", "p2c"], position_buckets=8, share_att_key=True),
                   lambda: deberta(pos_att_type=["c2p", "p2c"], position_buckets=8, share_att_key=False)],
    "parakeet": [test_hf_sound.parakeet, lambda: test_hf_sound.parakeet(dropout_positions=0.3)],
    "nemotron_asr_streaming": [lambda: (lambda model, inputs, keep: (model, {**inputs, "use_cache": True}))(
        *test_hf_sound.nemotron(dropout_positions=0.3))],
    "fastspeech2_conformer": [lambda: test_hf_sound.fastspeech2()],
    "seamless_m4t": [lambda: test_hf_sound.seamless(1)], "seamless_m4t_v2": [lambda: test_hf_sound.seamless(2)],
    "inkling": ["Inkling"], "inkling2": ["Inkling2"], "inkling2_loop": ["Inkling2Loop"],
    "wav2vec2_bert": ["Wav2Vec2Bert", "Wav2Vec2Bert, relative"], "xlnet": ["XLNet", "XLNet, segments"]}


def reads(file):
    """Return {(type, name)} of the attributes that the adapter of a file reads while its models run, except those that
    relpos or torch.nn.Module sets."""
    with recording() as found:
        for make in MODELS[file]:
            model, inputs, *_ = make() if callable(make) else test_hf.ADAPTED[make]()
            model.set_attn_implementation("relpos")
            with torch.no_grad():
                for mode in (model.eval, model.train):
                    mode()(**inputs)
    return {(cls, name) for cls, name in found if cls.__module__.startswith("transformers.models.")
            and name not in _guard._SET_HERE
            and name != "_attn_implementation" and not hasattr(torch.nn.Module, name)}


def compared(file):
    """Return {(type, name)} of the attributes that the guard checks for an adapter."""
    module, found = of_transformers(file), set()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_guard, "_require", lambda owner, name: found.add((owner, name)))
        unchanged = importlib.util.spec_from_file_location(module.__name__, module.__file__)
        fresh = importlib.util.module_from_spec(unchanged)
        patch.setitem(sys.modules, module.__name__, fresh)
        unchanged.loader.exec_module(fresh)
        relpos.hf._adapt(fresh)
    return {(owner.__name__, name) for owner, name in found if isinstance(owner, type)
            and owner.__module__.startswith("transformers.models.")
            and name not in _guard._SET_HERE and not hasattr(torch.nn.Module, name)}


def renamed_attribute(cls, name):
    """Return a change that renames an attribute in the code of a class and its bases; for a config, in the code that
    reads it."""
    if issubclass(cls, transformers.PreTrainedConfig):
        return functools.partial(rename_everywhere, name, lambda tree: [tree])
    bases = {base.__name__ for base in cls.__mro__}
    return functools.partial(rename_everywhere, name,
                             lambda tree: [x for x in tree.body if isinstance(x, ast.ClassDef) and x.name in bases])


def rename_everywhere(name, scopes, tree):
    count = 0
    for x in (x for scope in scopes(tree) for x in ast.walk(scope)):
        for kind, field in ((ast.Attribute, "attr"), (ast.FunctionDef, "name"), (ast.Constant, "value")):
            if isinstance(x, kind) and getattr(x, field) == name:
                setattr(x, field, "other_" + name)
                count += 1
    assert count, f"{name} is not in the code"


@pytest.mark.parametrize("file", [file for file in MODELS if applies(file)])
def test_every_attribute_that_an_adapter_reads_is_checked(file, monkeypatch, tmp_path):
    """The test records attributes while models run, so it finds them however the adapter reads them: by a.b, getattr or
    hasattr."""
    found = reads(file)
    assert found
    for cls, name in sorted(found, key=str):
        with monkeypatch.context() as patch:
            why = relpos.hf._adapt(copied(file, renamed_attribute(cls, name), patch, tmp_path))
        assert why and re.search(rf"\b{name}\b", why), (cls.__name__, name, why)
    missed = compared(file) - {(base.__name__, name) for cls, name in found for base in cls.__mro__}
    assert not missed, "the models of this test have to read every attribute that the guard checks"


def test_every_adapter_has_a_model():
    """MODELS has a model for every adapter except Gemma 4's, which reads no attribute except the config."""
    assert {file for file in ADAPTERS if applies(file)} - set(MODELS) <= {"gemma4"}


def renamed(old, new, *classes):
    """Return a function that renames a parameter or an attribute in some classes of a syntax tree."""
    def change(tree):
        for x in (x for scope in tree.body if getattr(scope, "name", None) in classes for x in ast.walk(scope)):
            for field in ("id", "attr", "arg"):
                if getattr(x, field, None) == old:
                    setattr(x, field, new)
    return change


def test_only_the_model_of_a_changed_module_is_refused(monkeypatch, tmp_path):
    """The test renames MPT's cache argument. Without the refusal, the adapter would ignore the cache in each decoding
    step."""
    known = of_transformers("mpt").MptAttention.forward
    name = next(x for x in _guard._named(known)[0] if x in ("cache", "past_key_values"))
    module = copied("mpt", renamed(name, "store", "MptAttention", "MptBlock"), monkeypatch, tmp_path)
    config = dict(vocab_size=60, d_model=32, n_layers=1, n_heads=2, max_seq_len=32)
    said = (f"MptModel of transformers {transformers.__version__} differs from the code that relpos replaces "
            ".MptAttention.forward has no parameter cache.; use attn")
    with pytest.raises(relpos.hf.Refused, match=said):
        module.MptModel._from_config(transformers.MptConfig(**config), attn_implementation="relpos")
    model = module.MptModel(transformers.MptConfig(**config)).eval()
    with pytest.raises(relpos.hf.Refused, match=said):
        model.set_attn_implementation("relpos")
    assert (model.config._attn_implementation == "eager"
            and model(torch.ones(1, 3, dtype=torch.long)).last_hidden_state.shape == (1, 3, 32))
    other = transformers.BloomModel(transformers.BloomConfig(vocab_size=60, hidden_size=32, n_layer=1, n_head=2)).eval()
    other.set_attn_implementation("relpos")
    assert other(torch.ones(1, 3, dtype=torch.long)).last_hidden_state.shape == (1, 3, 32)


def test_every_adapter_fits_this_release():
    for file in ADAPTERS:
        if file not in SINCE_5_24 or applies(file):
            assert relpos.hf._adapt(of_transformers(file)) is None, file


def test_a_class_with_the_attention_interface_is_not_replaced():
    for file, name in (("gptj", "GPTJ"), ("codegen", "CodeGen")):
        module = of_transformers(file)
        relpos.hf._adapt(module)
        forward = getattr(module, name + "Block").forward
        assert applies(file) == (forward.__code__.co_filename == _guard.__file__)


def test_parts_of_a_composite_model_are_adapted():
    """A dictionary of implementations selects relpos for the vision part only."""
    config = transformers.Siglip2Config(
        vision_config=dict(hidden_size=32, intermediate_size=48, num_hidden_layers=1, num_attention_heads=2,
                           num_patches=16, patch_size=4),
        text_config=dict(vocab_size=60, hidden_size=32, intermediate_size=48, num_hidden_layers=1,
                         num_attention_heads=2, projection_size=32))
    model = transformers.Siglip2Model(config).eval()
    model.set_attn_implementation({"vision_config": "relpos"})
    assert (model.vision_model.config._attn_implementation == "relpos" and model.text_model.config._attn_implementation
            != "relpos")
    assert type(model.vision_model.head)._asks_relpos and model.vision_model.head.config is model.vision_model.config


def test_importing_relpos_imports_nothing_slow():
    """Importing relpos.hf must not import the modules of models or torch's compiler, which take seconds."""
    text = ("import sys, torch, transformers; from transformers import PreTrainedModel, masking_utils; from "
            "transformers.generation import utils; "
            "before = set(sys.modules); import relpos.hf; "
            "new = [x for x in set(sys.modules) - before if not x.startswith('relpos')]; "
            "assert not [x for x in sys.modules if x.startswith('transformers.models.') and '.modeling_' in x and "
            "'.auto.' not in x]; "
            "assert len(new) < 60, new")
    subprocess.run([sys.executable, "-P", "-W", "ignore", "-c", text], check=True)


def test_importing_relpos_torch_leaves_the_compiler_for_later():
    text = ("import sys, torch; import relpos.torch; assert not {'torch._dynamo', 'torch.utils.flop_counter', 'sympy'} "
            "& set(sys.modules); "
            "from torch.utils.flop_counter import flop_registry; assert torch.ops.relpos.attention in flop_registry")
    subprocess.run([sys.executable, "-P", "-W", "ignore", "-c", text], check=True)


def test_a_newer_release_gets_a_warning():
    text = "import transformers; transformers.__version__ = '99.0'; import relpos.hf"
    done = subprocess.run([sys.executable, "-P", "-c", text], capture_output=True, text=True)
    assert (done.returncode == 0 and "transformers is version 99.0, and this relpos was tested up to "
                                     f"{relpos.hf.NEWEST}" in done.stderr)
