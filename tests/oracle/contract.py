"""contract.py -- a second implementation of the relpos operator, from its formulas, in torch float64.

evaluate(arguments, arrays) parses the arguments of `relpos attend`, so the numbers of a case always belong to its
command line. Gradients come from torch.autograd. The code is slow and independent of the C sources.

SPDX-License-Identifier: Apache-2.0
"""
import math
import shlex

import torch

F64 = torch.float64
LEARNED = {  # term: keys of the arrays that have gradients
    "table": ["table"], "t5": ["table"], "bucket": ["table"], "alibi": ["slopes"], "kerple": ["p", "a"],
    "fire": ["w1", "b1", "w2", "b2", "w3", "b3"], "swin": ["table"], "axial": ["bh", "bw"], "real": ["table"],
    "band": ["r", "p"], "forget": ["logf"], "dense": ["bias"], "relkey": ["table"], "relval": ["table"],
    "xl": ["r", "u", "v"], "axialkey": ["rh", "rw"], "deberta": ["k_pos", "q_pos"], "sink": ["name"],
}


# ------------------------------------------------------------------------------------------------ the command line

def parse(arguments):
    """Return the arguments of `relpos attend` as a dictionary; `bias` is a list of (term, settings)."""
    words, said = shlex.split(arguments), {"bias": []}
    i = 0
    while i < len(words):
        name = words[i].removeprefix("--")
        i += 1
        if name in ("causal", "weights", "lse", "grad", "summary"):
            said[name] = True
            continue
        value = words[i]
        i += 1
        if name == "bias":
            term, *rest = value.split(",")
            said["bias"].append((term, dict(x.split("=", 1) for x in rest)))
        elif name in ("rope", "relkey", "relval", "xl", "axialkey", "deberta"):
            said[name] = dict(x.split("=", 1) for x in value.split(","))
        else:
            said[name] = value
    return said


def learned_names(said):
    """Return the names of the learned arrays that the arguments use, in order, without repeats."""
    terms = said["bias"] + [(n, said[n]) for n in ("relkey", "relval", "xl", "axialkey", "deberta") if n in said]
    if "sink" in said:
        terms.append(("sink", {"name": said["sink"]}))
    names = [given[key] for term, given in terms for key in LEARNED.get(term, []) if key in given]
    return list(dict.fromkeys(names))


# ------------------------------------------------------------------------------------------------ buckets

def t5_bucket(delta, buckets, max_distance, bidirectional):
    """Compute the buckets of Raffel 2020 as transformers does, with the logarithm in f32."""
    delta = delta.trunc().long()
    result = torch.zeros_like(delta)
    if bidirectional:
        buckets //= 2
        result += (delta > 0).long() * buckets
        d = delta.abs()
    else:
        d = -torch.minimum(delta, torch.zeros_like(delta))
    exact = buckets // 2
    far = exact + (torch.log(d.float() / exact) / math.log(max_distance / exact) * (buckets - exact)).long()
    return result + torch.where(d < exact, d, torch.minimum(far, torch.full_like(far, buckets - 1)))


def spaced_bucket(delta, strategy, buckets, max_distance, bidirectional):
    if strategy == "log":
        return t5_bucket(delta, buckets, max_distance, bidirectional)
    delta = delta.trunc().long()
    n = buckets // 2 if bidirectional else buckets
    e = n // 2
    d = delta.abs()
    far = (d - e).clamp(min=0)
    if strategy == "uniform":
        b = d * n // max_distance
    elif strategy == "linear":
        b = torch.where(d < e, d, e + far * (n - e) // (max_distance - e))
    elif strategy == "quadratic":
        b = torch.where(d < e, d, e + torch.floor((n - e) * torch.sqrt(far.to(F64) / (max_distance - e))).long())
    else:
        raise ValueError(strategy)
    b = b.clamp(max=n - 1)
    return b + (delta > 0).long() * n if bidirectional else b


def deberta_bucket(d, buckets, max_position):
    """Compute the buckets of d = query - key as make_log_bucket_position of DeBERTa-v2 does."""
    if buckets <= 0:
        return d
    mid = buckets // 2
    near = (d < mid) & (d > -mid)
    a = torch.where(near, torch.full_like(d, mid - 1), d.abs())
    # in f32, like DeBERTa-v2: at d = mid * ((max_position - 1) / mid)^(n / (mid - 1)) the ceiling depends on the last
    # bit
    log = torch.ceil(torch.log(a / mid) / torch.log(torch.tensor((max_position - 1) / mid)) * (mid - 1)) + mid
    return torch.where(a <= mid, d, (log * d.sign()).long())


# ------------------------------------------------------------------------------------------------ rotary

def rope_frequencies(said, arrays, dim, length):
    """Return (inv_freq in f64, factor of cos and sin) for a Hugging Face rope configuration. `length` is the largest
    position + 1."""
    num = {k: float(v) for k, v in said.items() if k not in ARRAY_KEYS and k not in ("layout", "scaling")}
    base, scaling = num.get("base", 10000.0), said.get("scaling", "none")
    t = torch.arange(0, dim, 2, dtype=F64) / dim
    factor, original = num.get("factor"), num.get("original_max_position_embeddings")
    longest = num.get("max_position_embeddings")
    if scaling == "none":
        return base ** -t, 1.0
    if scaling == "linear":
        return base ** -t / factor, 1.0
    if scaling == "dynamic":
        n = max(length, longest)
        base = base * (factor * n / longest - (factor - 1)) ** (dim / (dim - 2))
        return base ** -t, 1.0
    if scaling == "yarn":
        if factor is None:
            factor = longest / original

        def mscale(scale, m=1.0):
            return 1.0 if scale <= 1 else 0.1 * m * math.log(scale) + 1.0
        given, m, mall = num.get("attention_factor"), num.get("mscale"), num.get("mscale_all_dim")
        if given is None:
            given = mscale(factor, m) / mscale(factor, mall) if m and mall else mscale(factor)

        def dimension(turns):
            return dim * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(base))
        low, high = dimension(num.get("beta_fast", 32.0)), dimension(num.get("beta_slow", 1.0))
        if num.get("truncate", 1):
            low, high = math.floor(low), math.ceil(high)
        low, high = max(low, 0), min(high, dim - 1)
        if low == high:
            high += 0.001
        ramp = ((torch.arange(dim // 2, dtype=F64) - low) / (high - low)).clamp(0, 1)
        return base ** -t / factor * ramp + base ** -t * (1 - ramp), given
    if scaling == "llama3":
        f = base ** -t
        wave = 2 * math.pi / f
        low, high = num["low_freq_factor"], num["high_freq_factor"]
        smooth = (original / wave - low) / (high - low)
        mixed = (1 - smooth) * f / factor + smooth * f
        return torch.where(wave < original / high, f, torch.where(wave > original / low, f / factor, mixed)), 1.0
    if scaling == "longrope":
        if factor is None:
            factor = longest / original
        given = num.get("attention_factor")
        if given is None:
            given = 1.0 if factor <= 1 else math.sqrt(1 + math.log(factor) / math.log(original))
        ext = arrays[said["long_factor" if length > original else "short_factor"]].to(F64)
        return 1.0 / (ext * base ** t), given
    raise ValueError(scaling)


def rope_lengths(c, given, kpos):
    """Return the length of each token, (B,L): the largest position of a key that some query attends to, plus 1, in each
    batch entry or segment."""
    shown = allowed(c).expand(c.B, c.H, -1, -1)
    for term, more in c.said["bias"]:
        if term == "dense":
            shown = shown & (bias_term(c, term, more) != -math.inf)
    shown = shown.any(2).any(1)
    label = c.batched(c.arrays[c.said["segments"]]) if "segments" in c.said else torch.zeros(c.B, c.Lk)
    length = torch.zeros(c.B, max(c.Lq, c.Lk), dtype=F64)
    for b in range(c.B):
        for x in label[b].unique():
            own = label[b] == x
            some = kpos[b, own & shown[b]]
            longest = float(given.get("length", some.max().item() + 1 if len(some) else 0))
            if "segments" in c.said:
                length[b, own] = longest
            else:
                length[b] = longest
    return length


def rope_angles(c, given, dim, positions, length):
    """Return the angles (B,L,dim/2) of tokens at `positions`, whose lengths are `length` (both (B,L)), and the
    factor."""
    found = {n.item(): rope_frequencies(given, c.arrays, dim, n.item()) for n in length.unique()}
    per_token = torch.stack([torch.stack([found[n.item()][0] for n in row]) for row in length])
    return positions[:, :, None] * per_token[:, :positions.shape[1]], next(iter(found.values()))[1]


ARRAY_KEYS = ("positions", "q_positions", "k_positions", "short_factor", "long_factor")


def rotate(x, angle, factor, layout, dim):
    """Rotate x (B,H,L,D) by angle (B,L,dim/2)."""
    cos, sin = (angle.cos() * factor).unsqueeze(1), (angle.sin() * factor).unsqueeze(1)
    head, tail = x[..., :dim], x[..., dim:]
    if layout == "half":
        a, b = head[..., :dim // 2], head[..., dim // 2:]
        turned = torch.cat([a * cos - b * sin, b * cos + a * sin], -1)
    else:
        a, b = head[..., 0::2], head[..., 1::2]
        turned = torch.stack([a * cos - b * sin, b * cos + a * sin], -1).flatten(-2)
    return torch.cat([turned, tail], -1)


# ------------------------------------------------------------------------------------------------ the operator

def alibi_slopes(heads):
    """Return the slopes of Press 2022: for a power of two, a geometric sequence; for other numbers of heads, the
    sequence of the power below and every other slope of the power above."""
    whole = 2 ** math.floor(math.log2(heads))
    slopes = [2.0 ** (-8.0 * (h + 1) / whole) for h in range(whole)]
    slopes += [2.0 ** (-8.0 * (h + 1) / (2 * whole)) for h in range(0, 2 * whole, 2)][:heads - whole]
    return torch.tensor(slopes, dtype=F64)


class Call:
    """The shapes, positions and arrays of one call."""

    def __init__(self, said, arrays):
        self.said, self.arrays = said, arrays
        self.q, self.k, self.v = arrays["q"], arrays["k"], arrays["v"]
        self.B, self.H, self.Lq, self.D = self.q.shape
        self.Lk = self.k.shape[2]
        self.scale = float(said.get("scale", 1 / math.sqrt(self.D)))
        offset = said.get("q-offset", "0")
        self.offset = arrays[offset].long() if offset in arrays else torch.full((self.B,), int(offset))
        self.pi = torch.arange(self.Lq).expand(self.B, -1) + self.offset[:, None]   # (B,Lq), by index
        self.pj = torch.arange(self.Lk).expand(self.B, -1)
        self.index_delta = self.pj[:, None, :] - self.pi[:, :, None]                # (B,Lq,Lk), for the masks
        self.qpos, self.kpos = self.pi.to(F64), self.pj.to(F64)
        if "segments" in said:
            seg = self.batched(arrays[said["segments"]])
            start = torch.zeros_like(self.pj)
            for j in range(1, self.Lk):
                start[:, j] = torch.where(seg[:, j] == seg[:, j - 1], start[:, j - 1], self.pj[:, j])
            self.kpos = (self.pj - start).to(F64)
            self.qpos = (self.pi - start).to(F64)

    def batched(self, x):
        return (x if x.dim() == 2 else x[None]).expand(self.B, -1)

    def positions(self, given):
        q, k = self.qpos, self.kpos
        if "positions" in given:
            q = k = self.batched(self.arrays[given["positions"]]).to(F64)
        if "q_positions" in given:
            q = self.batched(self.arrays[given["q_positions"]]).to(F64)
        if "k_positions" in given:
            k = self.batched(self.arrays[given["k_positions"]]).to(F64)
        return q, k

    def delta(self, given):
        """Return r = p_j - p_i, (B,Lq,Lk), in f64."""
        q, k = self.positions(given)
        return k[:, None, :] - q[:, :, None]

    def clipped(self, given):
        left, right = int(given["left"]), int(given["right"])
        return self.delta(given).trunc().clamp(-left, right).long() + left

    def known(self, given):
        """Return a mask (B,Lq,Lk) of the pairs in which both tokens have a position."""
        both = torch.ones(self.B, self.Lq, self.Lk, dtype=torch.bool)
        for key, axis in (("q_position_mask", 2), ("k_position_mask", 1)):
            if key in given:
                both = both & (self.batched(self.arrays[given[key]]) != 0).unsqueeze(axis)
        return both

    def per_head(self, table, index):
        """Look up table (H or 1, n) at index (B,Lq,Lk). Return (B,H,Lq,Lk)."""
        return table.expand(self.H, -1)[:, index].transpose(0, 1)

    def grid(self, given, skip=0):
        """Return the differences of rows and of columns, query - key, (Lq-skip, Lk-skip)."""
        gh, gw = (int(x) for x in given["grid"].split("x"))
        y, x = torch.arange(gh * gw) // gw, torch.arange(gh * gw) % gw
        return gh, gw, y[:, None] - y[None, :], x[:, None] - x[None, :]

    def vectors(self, given):
        """Return Shaw's vectors (B,H,Lq,Lk,D)."""
        table, index = self.arrays[given["table"]], self.clipped(given)
        if table.dim() == 2:
            table = table[None]
        vectors = table.expand(self.H, -1, -1)[:, index].transpose(0, 1)
        return torch.where(self.known(given)[:, None, :, :, None], vectors, torch.zeros((), dtype=F64))


def bias_term(c, term, given):
    """Return the bias of a term, (B,H,Lq,Lk) or broadcastable to it."""
    a = lambda key: c.arrays[given[key]]
    num = lambda key, default=None: float(given.get(key, default))
    if term == "table":
        return c.per_head(a("table"), c.clipped(given))
    if term in ("t5", "bucket"):
        n, m, both = int(given.get("buckets", 32)), int(given.get("max_distance",
                                                                  128)), int(given.get("bidirectional", 1))
        return c.per_head(a("table").T, spaced_bucket(c.delta(given), given.get("strategy", "log"), n, m, both))
    if term == "log":
        return -num("lambda", 0.3) * torch.log1p(c.delta(given).abs())[:, None]
    if term == "linear":
        r = c.delta(given)
        return torch.where(r < 0, -num("left", 1) * r.abs(), -num("right", 1) * r)[:, None]
    if term == "alibi":
        slopes = a("slopes") if "slopes" in given else alibi_slopes(c.H)
        return torch.where(c.known(given)[:, None], -slopes[None, :, None, None] * c.delta(given).abs()[:, None],
                           torch.zeros((), dtype=F64))
    if term == "kerple":
        p, s, d = a("p")[None, :, None, None], a("a")[None, :, None, None], c.delta(given).abs()[:, None]
        return -p * torch.log(1 + s * d) if given.get("kind", "log") == "log" else -s * d ** p
    if term == "sandwich":
        dim, base = int(given["dim"]), num("base", 10000)
        r = c.delta(given)
        total = sum(torch.cos(r / base ** (2 * k / dim)) for k in range(dim // 2))
        heads = 8.0 * (torch.arange(c.H, dtype=F64) + 1) / c.H
        return total[:, None] / heads[None, :, None, None]
    if term == "fire":
        psi = lambda x: torch.log(torch.abs(num("c") * x) + 1)
        qpos, _ = c.positions(given)
        x = psi(c.delta(given).abs()) / (psi(qpos.clamp(min=num("L")))[:, :, None] + num("eps", 1e-6))
        x = x[..., None]
        layers = [i for i in (1, 2, 3) if "w%d" % i in given]
        for i in layers:
            x = x @ a("w%d" % i).T + a("b%d" % i)
            if i != layers[-1]:
                x = torch.relu(x)
        return x.permute(0, 3, 1, 2)
    if term == "swin":
        gh, gw, dy, dx = c.grid(given)
        index = (dy + gh - 1) * (2 * gw - 1) + dx + gw - 1
        if int(given.get("extra", 0)):
            rows = (2 * gh - 1) * (2 * gw - 1)
            whole = torch.empty(c.Lq, c.Lk, dtype=torch.long)
            whole[1:, 1:] = index
            whole[0, :], whole[:, 0], whole[0, 0] = rows, rows + 1, rows + 2
            index = whole
        return a("table").T[:, index].expand(-1 if a("table").shape[1] == c.H else c.H, -1, -1)[None]
    if term == "axial":
        gh, gw, dy, dx = c.grid(given)
        return (a("bh")[:, gh - 1 - dy] + a("bw")[:, gw - 1 - dx])[None]
    if term == "real":
        n = int(given["max_distance"])
        d = (-c.delta(given)).clamp(-n, n).trunc().long() + n
        value = float(given.get("sign", -1)) * c.per_head(a("table"), d)
        return torch.where(c.known(given)[:, None], value, torch.zeros((), dtype=F64))
    if term == "band":
        p = a("p")
        extent = p.shape[-1]
        d = -c.delta(given).long()
        every = torch.einsum("bhic,hce->bhie", a("r"), (p if p.dim() == 3 else p[None]).expand(c.H, -1, -1))
        value = torch.gather(every, 3, d.clamp(0, extent - 1)[:, None].expand(-1, c.H, -1, -1))
        return torch.where(((d >= 0) & (d < extent))[:, None], value, torch.zeros((), dtype=F64))
    if term == "forget":
        t = torch.arange(c.Lk)
        inside = (t > c.pj[:, None, :, None]) & (t <= c.pi[:, :, None, None])       # (B,Lq,Lk,t): j < t <= i
        return torch.einsum("bijt,bht->bhij", inside.to(F64), a("logf"))
    if term == "dense":
        return a("bias")
    raise ValueError(term)


def relkey_family(c):
    said = c.said
    total = 0.0
    group = c.H // c.k.shape[1]
    k = c.k.repeat_interleave(group, 1)
    if "relkey" in said:
        total = c.scale * torch.einsum("bhid,bhijd->bhij", c.q, c.vectors(said["relkey"]))
    if "xl" in said:
        r, u, v = (c.arrays[said["xl"][x]] for x in "ruv")
        assert r.shape == (c.H, c.Lq + c.Lk - 1, c.D) and u.shape == v.shape == (c.H, c.D)
        index = torch.arange(c.Lk)[None, :] - torch.arange(c.Lq)[:, None] + c.Lq - 1
        total = c.scale * (torch.einsum("hd,bhjd->bhj", u, k)[:, :, None, :]
                           + torch.einsum("bhid,hijd->bhij", c.q + v[None, :, None, :], r[:, index]))
    if "axialkey" in said:
        rh, rw = c.arrays[said["axialkey"]["rh"]], c.arrays[said["axialkey"]["rw"]]
        gh, gw, dy, dx = c.grid(said["axialkey"])
        total = torch.einsum("bhid,ijd->bhij", c.q, rh[dy + gh - 1] + rw[dx + gw - 1])
    if "deberta" in said:
        given = said["deberta"]
        span = int(given["span"])
        assert all(c.arrays[given[n]].shape == (c.H, 2 * span, c.D) for n in ("k_pos", "q_pos") if n in given)
        d = (c.pi[:, :, None] - c.pj[:, None, :])
        index = (deberta_bucket(d, int(given.get("buckets", -1)), int(given.get("max_position", 0))) + span)
        index = index.clamp(0, 2 * span - 1)
        heads = torch.arange(c.H)[None, :, None, None]
        if "k_pos" in given:
            total = total + c.scale * torch.einsum("bhid,bhijd->bhij", c.q,
                                                   c.arrays[given["k_pos"]][heads, index[:, None]])
        if "q_pos" in given:
            total = total + c.scale * torch.einsum("bhjd,bhijd->bhij", k,
                                                   c.arrays[given["q_pos"]][heads, index[:, None]])
    return total


def allowed(c):
    """Return a mask of the pairs that may attend, (B,H,Lq,Lk) or broadcastable to it."""
    said, r = c.said, c.index_delta[:, None]
    ok = torch.ones(c.B, 1, c.Lq, c.Lk, dtype=torch.bool)
    if "causal" in said:
        ok = ok & (r <= 0)
    if "window" in said:
        left, right = (int(x) for x in said["window"].split(","))
        ok = ok & ((left < 0) | (r >= -left)) & ((right < 0) | (r <= right))
    if "key-mask" in said:
        ok = ok & (c.batched(c.arrays[said["key-mask"]]) != 0)[:, None, None, :]
    if "mask" in said:
        ok = ok & (c.arrays[said["mask"]] != 0)
    if "lengths" in said:
        ok = ok & (c.pj < c.arrays[said["lengths"]][:, None])[:, None, None, :]
    if "starts" in said:
        ok = ok & (c.pj[:, None, :] >= c.batched(c.arrays[said["starts"]])[:, :, None])[:, None]
    if "ends" in said:
        ok = ok & (c.pj[:, None, :] < c.batched(c.arrays[said["ends"]])[:, :, None])[:, None]
    if "segments" in said:
        seg = c.batched(c.arrays[said["segments"]])
        ok = ok & (seg[:, :, None] == seg[:, None, :])[:, None]
    return ok


def cap(x, c):
    c = float(c)
    return c * torch.tanh(x / c) if c else x


def evaluate(arguments, arrays):
    """Return the results in float64, under the names that `relpos attend` uses. `arrays` is {name: tensor}; floating
    types are converted to f64."""
    said = parse(arguments)
    learned = learned_names(said)
    arrays = {n: x.detach().to(F64) if x.is_floating_point() else x for n, x in arrays.items()}
    leaves = ["q", "k", "v"] + learned
    if "grad" in said:
        for n in leaves:
            arrays[n] = arrays[n].clone().requires_grad_(True)
    c = Call(said, arrays)
    group = c.H // c.k.shape[1]
    q, k, v = c.q, c.k, c.v
    if "rope" in said:
        given = said["rope"]
        dim = int(given.get("dim", c.D))
        qpos, kpos = c.positions(given)
        layout, length = given.get("layout", "half"), rope_lengths(c, given, kpos)
        q = rotate(q, *rope_angles(c, given, dim, qpos, length), layout, dim)
        k = rotate(k, *rope_angles(c, given, dim, kpos, length), layout, dim)
    s = c.scale * torch.einsum("bhid,bhjd->bhij", q, k.repeat_interleave(group, 1)) + relkey_family(c)
    s = cap(s, said.get("softcap", 0))
    for term, given in said["bias"]:
        s = s + bias_term(c, term, given)
    ok = (allowed(c) & (s != -math.inf)).expand_as(s)       # a dense bias of -inf masks, also under a cap
    s = torch.where(ok, s, torch.zeros((), dtype=F64))      # masked pairs carry no value and no gradient
    s = cap(s, said.get("softcap-after", 0))

    sink = arrays[said["sink"]] if "sink" in said else None
    if sink is not None:  # (H), (H, Lq) or (B, H, Lq)
        sink = (sink[:, None] if sink.dim() == 1 else sink)[..., None].expand(c.B, -1, c.Lq, 1)
    top = torch.where(ok, s, torch.full((), -math.inf, dtype=F64)).amax(-1, keepdim=True).detach()
    if sink is not None:
        top = torch.maximum(top, sink.detach())
    top = torch.where(top == -math.inf, torch.zeros((), dtype=F64), top)
    e = torch.where(ok, torch.exp(s - top), torch.zeros((), dtype=F64))
    total = e.sum(-1, keepdim=True)
    if sink is not None:
        total = total + torch.exp(sink - top)
    empty = total == 0
    w = e / torch.where(empty, torch.ones((), dtype=F64), total)
    out = torch.einsum("bhij,bhjd->bhid", w, v.repeat_interleave(group, 1))
    if "relval" in said:
        out = out + torch.einsum("bhij,bhijd->bhid", w, c.vectors(said["relval"]))

    result = {"out": out.detach()}
    if "weights" in said:
        result["weights"] = w.detach()
    if "lse" in said:
        result["lse"] = (torch.log(total) + top).squeeze(-1).detach()               # log 0 = -inf if the row has no key
    if "summary" in said:
        lowest = -(c.Lq - 1 + c.offset)                                            # one per batch entry
        slot = (c.index_delta - lowest[:, None, None])[:, None].expand(-1, c.H, -1, -1).flatten(2)
        flat = torch.zeros(c.B, c.H, c.Lq + c.Lk - 1, dtype=F64)
        pairs = flat.scatter_add(2, slot, torch.ones_like(slot, dtype=F64))
        result["profile"] = flat.scatter_add(2, slot, w.detach().flatten(2)) / pairs
        result["key_mass"] = w.detach().sum(2)
        result["entropy"] = -torch.special.xlogy(w.detach(), w.detach()).sum(-1)
    if "grad" in said:
        grads = torch.autograd.grad((out * arrays["dout"]).sum(), [arrays[n] for n in leaves], allow_unused=True)
        for n, g in zip(leaves, grads):
            result["d" + n] = torch.zeros_like(arrays[n]) if g is None else g
            result["d" + n] = result["d" + n].detach()
    return result
