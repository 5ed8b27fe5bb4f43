"""Derivatives that relpos does not compute raise an error that names the argument. Neither torch.compile nor a default
value hides them.

SPDX-License-Identifier: Apache-2.0"""
import contextlib
import inspect

import pytest
import relpos
from test_definitions import CASES, FACTS, Case

torch = pytest.importorskip("torch")
import relpos.torch  # noqa: E402
from torch import func  # noqa: E402
from torch.autograd import forward_ad  # noqa: E402
from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

g = torch.Generator().manual_seed(0)
x, table = torch.randn(1, 2, 6, 8, generator=g), torch.randn(32, 2, generator=g)
REFUSED = ("(requires a gradient, which relpos.attention does not compute; use .detach|"
           "is a dual tensor, but relpos.attention computes no derivatives with respect to it; use .detach)")


@pytest.fixture(autouse=True)
def compiled_functions():
    """Forget compiled functions."""
    yield
    torch._dynamo.reset()


def attend(q):
    return relpos.attention(q, q, q, bias=relpos.T5(table))


def dual(f):
    def run(a, tangent):
        with forward_ad.dual_level():
            return forward_ad.unpack_dual(f(forward_ad.make_dual(a, tangent))).tangent
    return run


def jvp(f):
    return lambda a, tangent: func.jvp(f, (a,), (tangent,))[1]


def test_gradients_inside_forward_mode():
    """A tangent of another tensor does not disturb the gradients."""
    want, = torch.autograd.grad(attend(y := x.clone().requires_grad_()).sum(), y)
    s = torch.tensor(3.0)
    for call in (attend, make_fx(attend)(x)):
        found = jvp(lambda s: (call(y) * s).sum())(s, s)
        torch.testing.assert_close(torch.autograd.grad(found, y)[0], 3 * want)
    found = torch.compile(lambda y, s: jvp(lambda s: (attend(y) * s).sum())(s, s), backend="aot_eager", fullgraph=True)(
        y, s)
    torch.testing.assert_close(torch.autograd.grad(found, y)[0], 3 * want)


# ---- numbers

def reverse(f, s):
    return f(torch.nn.Parameter(s.clone()))


WAYS = {
    "a parameter": reverse,
    "grad": lambda f, s: func.grad(f)(s), "jvp": lambda f, s: jvp(f)(s, s), "dual": lambda f, s: dual(f)(s, s),
    "compiled": lambda f, s: reverse(torch.compile(f, backend="aot_eager"), s),
    "one graph": lambda f, s: reverse(torch.compile(f, backend="aot_eager", fullgraph=True), s),
    "compiled jvp": lambda f, s: torch.compile(jvp(f), backend="eager")(s, s),
    "make_fx": lambda f, s: make_fx(f)(s.clone().requires_grad_()),
    "jit.trace": lambda f, s: torch.jit.trace(lambda q, s: f(s), (x, s.clone().requires_grad_())),
}
# the default, which changes nothing; the other numbers have gradients (test_learned_numbers.py)
OPTIONS = {"dropout": 0.0}


def test_all_options_that_are_real_numbers():
    assert set(relpos._operator._REALS) | {"softcap_after"} == {*OPTIONS, "scale", "softcap", "softcap_after"}


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", OPTIONS)
def test_an_option_that_equals_its_default(name, way):
    with pytest.raises(Exception, match=rf"{name} (is of type \w+: it )?{REFUSED}"):
        WAYS[way](lambda s: relpos.attention(x, x, x, **{name: s}).sum(), torch.tensor(OPTIONS[name]))


def test_a_scale_multiplies_q():
    s = torch.tensor(0.5, requires_grad=True)
    want = relpos.attention(x, x, x, scale=0.5)
    torch.testing.assert_close(relpos.attention(x * s, x, x, scale=1), want)
    torch.testing.assert_close(relpos.attention(x, x, x, scale=s), want)


def test_an_option_of_the_functions_and_modules():
    zero = torch.nn.Parameter(torch.tensor(0.0))
    flat = torch.randn(1, 6, 8)
    calls = {"dropout_p": lambda: relpos.torch.scaled_dot_product_attention(x, x, x, dropout_p=zero),
             "T5Attention": lambda: relpos.torch.T5Attention(8, 2, dropout=zero)(flat),
             "ALiBi": lambda: relpos.torch.ALiBiMultiheadAttention(8, 2, dropout=zero)(flat, flat, flat),
             "RoPE": lambda: relpos.torch.RoPEMultiheadAttention(8, 2, rope_base=torch.nn.Parameter(torch.tensor(1e4)))(
                 flat, flat, flat),
             "window": lambda: relpos.torch.WindowAttention(8, 2, window_size=(2, 3), attn_drop=zero)(flat),
             "plan": lambda: relpos.Plan(1, 2, 6, 6, 8,
                                         softcap=zero),
             "backward": lambda: relpos.attention_backward(x, x, x, x, softcap=zero)}
    for name, call in calls.items():
        with pytest.raises(TypeError, match="requires a gradient"):
            call()
            pytest.fail(name)


# LogDecay's strength has a gradient (test_learned_numbers.py)
PARAMETERS = [(name, p["key"]) for name, facts in FACTS.items() for p in facts["parameters"]
              if (name, p["key"]) != ("log", "lambda")]


@pytest.mark.parametrize("name, key", PARAMETERS, ids="-".join)
def test_a_parameter_of_a_term(name, key):
    """Every parameter of every term, with its default value if that is a number."""
    kind, facts = relpos.TERMS[name], FACTS[name]
    word = relpos._terms._KEYWORDS.get(key, key)
    required = [x.name for x in inspect.signature(kind).parameters.values() if x.default is x.empty and x.name != word]
    default = relpos._terms._DEFAULTS[kind][key]
    s = torch.tensor(float(default) if isinstance(default, (int, float)) else 1.0)
    arrays = {a["name"]: torch.ones(2, 2) for a in facts["arrays"]}
    others = {other: arrays.get(other, 1) for other in required}
    options = lambda s: {facts["keyword"]: kind(**others, **{word: s})}
    for way in ("a parameter", "grad", "jvp", "dual"):
        with pytest.raises(TypeError, match=rf"{kind.__name__}: {word} {REFUSED}"):
            WAYS[way](lambda s: relpos.attention(x, x, x, **options(s)).sum(), s)
    with pytest.raises(TypeError, match=rf"{kind.__name__}: {word} {REFUSED}"):
        options((2, torch.nn.Parameter(s)))
    with torch.no_grad(), contextlib.suppress(ValueError):  # the library may refuse the value
        options(torch.nn.Parameter(s))


@pytest.mark.parametrize("way", ["compiled", "one graph", "compiled jvp", "make_fx"])
@pytest.mark.parametrize("name, key", [("alibi", "max_bias"), ("rope", "base"), ("t5", "max_distance"),
                                       ("linear", "left")])
def test_a_parameter_of_a_compiled_term(name, key, way):
    kind, word = relpos.TERMS[name], relpos._terms._KEYWORDS.get(key, key)
    arrays = [table] if name == "t5" else []
    call = lambda s: relpos.attention(x, x, x, **{FACTS[name]["keyword"]: kind(*arrays, **{word: s})}).sum()
    with pytest.raises(Exception, match=rf"{kind.__name__}: {word} {REFUSED}"):
        WAYS[way](call, torch.tensor(float(relpos._terms._DEFAULTS[kind][key])))


ARRAYS = [(name, sample, given, a["name"]) for name, sample, given in CASES for a in FACTS[name]["arrays"]
          if a["use"] in ("positions", "constant") and a["name"] in Case(name, sample, given).arrays
          and not (name == "rope" and "scaling" not in sample)]  # torch computes the gradient of these positions


@pytest.mark.parametrize("name, sample, given, array", ARRAYS)
def test_an_array_without_a_gradient(name, sample, given, array):
    """Positions and factors of every term, alone and beside other inputs with gradients."""
    case = Case(name, sample, given)
    q, k, v = map(torch.tensor, (case.q, case.k, case.v))
    case.arrays = {key: torch.tensor(a) for key, a in case.arrays.items()}
    case.arrays[array].requires_grad_()
    message = rf"{relpos.TERMS[name].__name__}(\({array}\)|: {array}) requires a gradient"
    for also in (False, True):
        with pytest.raises(TypeError, match=message):
            relpos.attention(q.requires_grad_(also), k, v, **case.options())
        with pytest.raises(TypeError, match=message):
            make_fx(lambda q: relpos.attention(q, k, v, **case.options()))(q)
    with torch.no_grad():
        relpos.attention(q, k, v, **case.options())


def test_an_array_without_a_gradient_in_a_compiled_function():
    p = torch.arange(6.0).requires_grad_()
    for term in (lambda: {"bias": relpos.ALiBi(q_positions=p,
                                               k_positions=p)}, lambda: {"rope": relpos.RoPE(positions=p)}):
        for whole in (False, True):
            with pytest.raises(Exception, match=r"\w*positions\)? requires a gradient"):
                torch.compile(lambda q: relpos.attention(q, q, q,
                                                         **term()).sum(), backend="aot_eager", fullgraph=whole)(x)


def test_functions_that_record_nothing_refuse_gradients():
    parameter, like = x.clone().requires_grad_(), (x, None, None)
    learned = relpos.T5(table.clone().requires_grad_())
    for name, call in (("jvp", lambda *a, **b: relpos.attention_jvp(*a, like, **b)),
                       ("hvp", lambda *a, **b: relpos.attention_hvp(x, *a, like, **b))):
        text = f"an input requires a gradient, which attention_{name} does not record; .* or use torch.func.jvp"
        for values, options in (((parameter, x, x), {}), ((x, x, x), {"bias": learned})):
            with pytest.raises(TypeError, match=text):
                call(*values, **options)
            with torch.no_grad():
                assert not call(*values, **options).out.requires_grad
    with pytest.raises(TypeError, match="attention_jvp does not record"):
        relpos.attention_jvp(x, x, x, (parameter, None, None))


def test_backward_of_a_tangent_inside_its_level_says_what_to_do():
    parameter = x.clone().requires_grad_()
    with forward_ad.dual_level():
        tangent = forward_ad.unpack_dual(attend(forward_ad.make_dual(parameter, x))).tangent
        with pytest.raises(RuntimeError, match=r"Inside forward_ad.dual_level, .backward\(\) of a tangent"):
            tangent.sum().backward(retain_graph=True)
    tangent.sum().backward()
    torch.testing.assert_close(parameter.grad, func.grad(lambda q: func.jvp(attend, (q,), (x,))[1].sum())(x))


def test_modules_name_need_weights():
    module = relpos.torch.RelativeSelfAttention(8, 4, 4)
    with pytest.raises(RuntimeError, match="leave out return_weights and summary, and pass need_weights=False"):
        func.jvp(lambda x: module(x)[0], (x[0],), (x[0],))
    assert func.jvp(lambda x: module(x, need_weights=False)[0], (x[0],), (x[0],))[1].shape == (2, 6, 4)
    with pytest.raises(TypeError, match="return_weights is an option of relpos.attention; pass need_weights"):
        module(x[0], return_weights=True)


def test_forward_mode_of_a_compiled_function_and_of_a_checkpoint():
    want = jvp(attend)(x[0], x[0])
    torch.testing.assert_close(jvp(torch.compile(attend, backend="aot_eager"))(x[0], x[0]), want)
    torch.testing.assert_close(jvp(lambda q: checkpoint(attend, q, use_reentrant=False))(x[0], x[0]), want)
    for transform in (jvp(lambda q: checkpoint(attend, q, use_reentrant=True)),
                      lambda q, _: func.grad(lambda q: checkpoint(attend, q, use_reentrant=True).sum())(q)):
        with pytest.raises(RuntimeError, match="setup_context"):
            transform(x[0], x[0])
