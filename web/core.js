// core.js -- loads the library as WebAssembly, choosing one of two modules, and calls web/core.c.
// SPDX-License-Identifier: Apache-2.0
import {unpack} from './unpack.js';

const types = {
  f32: 0,
  f64: 1,
  f16: 2,
  bf16: 3,
  i32: 10
};
const views = {
  f32: Float32Array,
  f64: Float64Array,
  f16: Uint16Array,
  bf16: Uint16Array,
  i32: Int32Array
};
const outputs = {
  out: 0,
  lse: 1,
  weights: 2,
  profile: 3,
  mass: 4
};

const rows = {
  bias: 0,
  scores: 1,
  weights: 2,
  out: 3,
  masked: 4
};

const partKinds = ['content', 'rotation', 'query', 'key', 'softcap', 'bias', 'softcap_after', 'mask'];  // rp_part_kind

const maxBytes = 2 ** 30;  // of an array: sizes in the module have 32 bits, and larger ones would overflow

/** Return what bundle.py packed as JSON and bytes: the object, with the bytes as its property `bytes`. */
export async function unpackObject(id) {
  const data = await unpack(id), size = new DataView(data).getUint32(0, true);
  const object = JSON.parse(new TextDecoder().decode(new Uint8Array(data, 4, size)));
  return Object.assign(object, {bytes: new Uint8Array(data, 4 + size)});
}

/** Return the numbers of rows of integers with a scale each. */
export function scaledRows(scales, integers, columns) {
  const to = new Float32Array(integers.length);
  for (let n = 0, row = 0; n < to.length; row++)
    for (const end = n + columns, scale = scales[row]; n < end; n++) to[n] = scale * integers[n];
  return to;
}

/** Return the system calls that a wasi-libc module imports. Only the clock works; there are no files and no
 * environment. */
function system(module, memory) {
  const view = () => new DataView(memory().buffer);
  const known = {
    clock_time_get: (id, precision, to) =>
      (view().setBigUint64(to, BigInt(Math.round(performance.now() * 1e6)), true), 0),
    environ_sizes_get: (n, bytes) => (view().setUint32(n, 0, true), view().setUint32(bytes, 0, true), 0),
    environ_get: () => 0,
    fd_prestat_get: () => 8,  // no such descriptor
    proc_exit: code => {
      throw new Error(`the library stopped with code ${code}`);
    },
  };
  const result = {};
  for (const {module: from, name} of WebAssembly.Module.imports(module))
    (result[from] ??= {})[name] = known[name] ?? (() => 52);  // not supported
  return result;
}

/** Apply the difference `change`, which bundle.py wrote, to the file `base`. Return the new file. */
function changed(base, change) {
  const from = new Uint8Array(base), own = new Uint8Array(change), view = new DataView(change),
        n = view.getUint32(0, true);
  const pieces = Array.from({length: n}, (_, k) => [0, 4, 8].map(x => view.getUint32(4 + 12 * k + x, true)));
  const to = new Uint8Array(pieces.reduce((sum, [before, , length]) => sum + before + length, 0));
  let read = 4 + 12 * n, write = 0;
  for (const [before, start, length] of pieces) {
    to.set(own.subarray(read, read += before), write);
    to.set(from.subarray(start, start + length), write += before);
    write += length;
  }
  return to;
}

/** Load the module with relaxed SIMD if the browser supports it, otherwise the module with SIMD128. */
export async function load() {
  const simd128 = await unpack('simd128');
  let module;
  try {
    module = await WebAssembly.compile(changed(simd128, await unpack('relaxed')));
  } catch {
    module = await WebAssembly.compile(simd128);
    module.plain = true;
  }
  return Object.assign(await instantiate(module), {module, vectors: module.plain ? 'SIMD128' : 'relaxed SIMD'});
}

/** Return a new instance of the compiled module. */
export async function instantiate(module) {
  let memory;
  const {exports} = await WebAssembly.instantiate(module, system(module, () => memory));
  memory = exports.memory;
  exports._initialize();
  return new Core(exports);
}

export class Core {
  constructor(exports) {
    this.x = exports;
    this.allocated = [];
    this.kinds = [];
    for (let kind = 1; this.string(exports.kind_text(kind)); kind++) {
      const [name, ...rest] = this.string(exports.kind_text(kind)).split(',');
      const arrays = [];
      for (let n = 0; exports.kind_array(kind, n); n++)
        arrays.push({
          name: this.string(exports.kind_array(kind, n)),
          optional: !!exports.kind_array_optional(kind, n),
          learned: !!exports.kind_array_learned(kind, n)
        });
      this.kinds.push({
        kind,
        name,
        bias: !!exports.kind_is_bias(kind),
        ignoresOffset: !!exports.kind_ignores_offset(kind),
        arrays,
        defaults: Object.fromEntries(rest.map(p => p.split('=')))
      });
    }
    this.masks = [];
    const numbers = exports.allocate(24);
    for (let kind = 1; exports.mask_name(kind); kind++) {
      const params = [];
      for (let n = 0, key; (key = exports.mask_param(kind, n, numbers)); n++) {
        const [value, min, max] = this.read(numbers, 3);
        params.push({key: this.string(key), value, min, max});
      }
      const [name, text, constant, axes] =
        ['name', 'text', 'constant', 'axes'].map(of => this.string(exports[`mask_${of}`](kind)));
      this.masks.push({kind, name, text, constant, axes, params});
    }
    exports.release(numbers);
    this.kindOf = Object.assign(Object.create(null), Object.fromEntries(this.kinds.map(k => [k.name, k])));
  }

  string(at) {
    const bytes = new Uint8Array(this.x.memory.buffer);
    let end = at;
    while (bytes[end]) end++;
    return at ? new TextDecoder().decode(bytes.subarray(at, end)) : '';
  }

  /** Allocate memory in the module; clear() frees it. */
  allocate(bytes) {
    if (!(bytes <= maxBytes))
      throw new Error(`an array of ${bytes} bytes is too large (at most ${maxBytes}): choose smaller sizes`);
    const at = this.x.allocate(bytes);
    if (!at) throw new Error('out of memory: choose smaller sizes');
    this.allocated.push(at);
    return at;
  }

  clear() {
    for (const at of this.allocated) this.x.release(at);
    this.allocated = [];
  }

  put(text) {
    const bytes = new TextEncoder().encode(text + '\0'), at = this.allocate(bytes.length);
    new Uint8Array(this.x.memory.buffer).set(bytes, at);
    return at;
  }

  copy(data) {
    const at = this.allocate(data.byteLength);
    new Uint8Array(this.x.memory.buffer).set(new Uint8Array(data.buffer, data.byteOffset, data.byteLength), at);
    return at;
  }

  check(code) {
    if (code < 0) throw new Error(this.string(this.x.error()));
    return code;
  }

  read(at, n, type = 'f64') { return new views[type](this.x.memory.buffer, at, n).slice(); }

  /** Set the problem for later calls. terms: texts, or {text, arrays: {name: {shape, data, type}}}; masks: {kind,
   * values}. If q, k or v has the numbers of one head, all heads use them. */
  problem({
    heads = 1,
    kvHeads = 0,
    lenQ,
    lenK,
    dimK = 1,
    dimV = 0,
    type = 'f64',
    scale = NaN,
    softcap = 0,
    qOffset = 0,
    terms = [],
    masks = [],
    q,
    k,
    v
  }) {
    this.clear();
    for (const n of [heads, kvHeads, lenQ, lenK, dimK, dimV])
      if (!(Number.isInteger(n) && n >= 0 && n <= maxBytes))
        throw new Error(`a size is ${n}: choose an integer of at most ${maxBytes}`);
    this.size = {heads, lenQ, lenK, dimV: dimV || dimK, type};
    this.x.begin(heads, kvHeads, lenQ, lenK, dimK, dimV, types[type]);
    this.terms = terms.map(term => term.text ?? term);
    this.x.settings(scale, softcap, qOffset);
    for (const term of terms) {
      const {text, arrays = {}} = typeof term === 'string' ? {text: term} : term;
      const n = this.check(this.x.term(this.put(text)));
      const known = this.kinds.find(kind => kind.kind === this.x.term_kind(n)).arrays;
      known.forEach(({name}, index) => arrays[name] && this.array(n, index, arrays[name]));
    }
    for (const {kind, values} of masks) this.check(this.x.mask(kind, this.copy(Float64Array.from(values))));
    const kv = kvHeads || heads,
          set = (n, data, heads, length, width) => data &&
      this.array(n, 0, {shape: [1, data.length === length * width ? 1 : heads, length, width], data, type});
    set(-1, q, heads, lenQ, dimK);
    set(-2, k, kv, lenK, dimK);
    set(-3, v, kv, lenK, dimV || dimK);
    this.meaning = [null, 'entry', 'bucket', 'random'][this.check(this.x.fill())];
    return this;
  }

  array(term, index, {shape, data, type = 'f64'}) {
    const typed = ArrayBuffer.isView(data) ? data : Float64Array.from(data);
    if (typed.length !== shape.reduce((a, b) => a * b, 1))
      throw new Error(`an array of ${typed.length} numbers does not have the shape ${shape}`);
    this.check(
      this.x.array(term, index, types[type], shape.length, this.copy(Int32Array.from(shape)), this.copy(typed)));
  }

  /** Return the shape that the array `name` of a term has for this number of heads. */
  shape(text, name, heads = 1) {
    const kind = this.kindOf[text.split(',')[0]], at = this.allocate(4 * this.x.max_axes());
    const ndim =
      this.check(this.x.term_shape(this.terms.indexOf(text), kind.arrays.findIndex(a => a.name === name), heads, at));
    return [...new Int32Array(this.x.memory.buffer, at, ndim)];
  }

  /** Return the biases [heads, lenQ, lenK]. With `into`, write them to this address in the module instead, and return
   * the address. */
  bias(into = 0) {
    const {heads, lenQ, lenK} = this.size, at = into || this.allocate(8 * heads * lenQ * lenK);
    this.check(this.x.bias(at));
    return into ? at : this.read(at, heads * lenQ * lenK);
  }

  /** Return rows of one head for n queries, starting at i. what: 'bias' (which needs no q and k), 'scores', 'weights',
   * 'out', or 'masked': the weights, and -Infinity for masked pairs. to: an array for the numbers; default: a new one.
   * */
  rows(what, h, i = 0, n = this.size.lenQ, to) {
    const each = what === 'out' ? this.size.dimV : this.size.lenK, at = this.allocate(8 * n * each);
    this.check(this.x.rows(rows[what], h, i, n, at));
    if (!to) return this.read(at, n * each);
    to.set(new Float64Array(this.x.memory.buffer, at, n * each));
    return to;
  }

  /** Return how each term's bias for a pair is computed: ["-0.3 * log(1 + 4)"]. */
  expressions(h, i, j) {
    return this.terms.map((_, term) => {
      const at = this.x.expression(term, h, i, j);
      if (!at) throw new Error(this.string(this.x.error()));
      return this.string(at);
    });
  }

  /** Return array `index` of a term as {shape, data, type} if the module filled it because it was missing, otherwise
   * null. The type is f64, or i32 for indices. */
  filled(term, index) {
    const max = 2 + this.x.max_axes(), to = this.allocate(4 * max), at = this.x.filled(term, index, to);
    if (!at) return null;
    const [axes, ...sizes] = new Int32Array(this.x.memory.buffer, to, max), shape = sizes.slice(0, axes),
                 type = sizes[axes] === types.i32 ? 'i32' : 'f64';
    return {shape, data: this.read(at, shape.reduce((a, b) => a * b, 1), type), type};
  }

  /** Return the steps of one query. hasV: the problem has v, so the result includes an output. */
  row(h, i, hasV = false) {
    const n = this.size.lenK, at = this.allocate(8 * (5 * n + 1 + this.size.dimV));
    this.check(this.x.row(h, i, at));
    const all = this.read(at, 5 * n + 1 + this.size.dimV), row = x => all.slice(x * n, (x + 1) * n);
    return {
      raw: row(0),
      scaled: row(1),
      bias: row(2),
      score: row(3),
      weights: row(4),
      lse: all[5 * n],
      out: hasV ? all.slice(5 * n + 1) : null
    };
  }

  /** Return the summands of a query's scores in order: {kind, name, formula, values}; kind is one of partKinds. */
  parts(h, i) {
    const n = this.size.lenK, at = this.allocate(8 * n * this.x.max_parts()),
          count = this.check(this.x.parts(h, i, at));
    return Array.from({length: count}, (_, x) => ({
      kind: partKinds[this.x.part_kind(x)],
      name: this.string(this.x.part_name(x)),
      formula: this.string(this.x.part_formula(x)),
      values: this.read(at + 8 * n * x, n)
    }));
  }

  /** Return one output of rp_attend: out, lse, weights, profile or mass. With `into`, write it to this address in the
   * module instead, and return the address. */
  attend(what, into = 0) {
    const {heads, lenQ, lenK, dimV, type} = this.size;
    const n = heads * {out: lenQ * dimV, lse: lenQ, weights: lenQ * lenK, profile: lenQ + lenK - 1, mass: lenK}[what];
    const of = type === 'f64' ? 'f64' : 'f32', at = into || this.allocate(n * (of === 'f64' ? 8 : 4));
    this.check(this.x.attend(outputs[what], at));
    return into ? at : this.read(at, n, of);
  }

  workSize() { return this.check(this.x.work_size()); }

  bucket(delta, {buckets, maxDistance, bidirectional, strategy}) {
    return this.check(this.x.bucket(delta, buckets, maxDistance, bidirectional ? 1 : 0, strategy));
  }

  /** Return how many distances, counted from 0, have a bucket that no other distance shares. */
  bucketExact({buckets, bidirectional, strategy}) {
    return this.x.bucket_exact(buckets, bidirectional ? 1 : 0, strategy);
  }

  /** Return the frequencies of a rope term whose text sets dim, and the factor of its cosines and sines. */
  frequencies(text, dim, longest) {
    this.clear();
    const at = this.allocate(8 * (dim / 2 + 1));
    this.check(this.x.frequencies(this.put(text), longest, at));
    const all = this.read(at, dim / 2 + 1);
    return {frequency: all.slice(0, dim / 2), factor: all[dim / 2]};
  }

  /** Return q, k and v of words, 8 numbers each. */
  words(list) {
    this.clear();
    const q = new Float64Array(list.length * 8), k = q.slice(), v = q.slice(), at = this.allocate(8 * 24);
    list.forEach((word, n) => {
      const bytes = new TextEncoder().encode(word), text = this.allocate(bytes.length);
      new Uint8Array(this.x.memory.buffer).set(bytes, text);
      this.x.word(text, bytes.length, at);
      const all = this.read(at, 24);
      q.set(all.subarray(0, 8), n * 8), k.set(all.subarray(8, 16), n * 8), v.set(all.subarray(16), n * 8);
    });
    return {q, k, v, width: 8};
  }

  /** Move an object over a grid of patches, as `relpos shift` does. Return, for absolute positions, relative ones,
   * windows and shifted windows, {change, pairs, before, after}: the largest change of a score, the number of pairs
   * that attend in only one place, and the scores among the object's patches. */
  shift({grid, object, window, seed}, by) {
    this.clear();
    const n = object ** 4, each = 2 * n + 2, at = this.allocate(8 * 4 * each);
    this.check(this.x.shift(grid, object, window, seed, by, at));
    return [0, 1, 2, 3].map(kind => {
      const [change, pairs, ...scores] = this.read(at + 8 * each * kind, each);
      return {change, pairs, before: scores.slice(0, n), after: scores.slice(n)};
    });
  }

  example() {
    const all = this.read(this.x.example(), 60), words = [0, 1, 2, 3, 4].map(n => this.string(this.x.example_word(n)));
    return {words, q: all.slice(0, 20), k: all.slice(20, 40), v: all.slice(40), width: 4};
  }

  /** Return the numbers of rows of 8-bit integers with a half-precision scale each: first all scales, then all
   * integers. */
  scaled(bytes, rows, columns) {
    const integers = new Int8Array(bytes.buffer, bytes.byteOffset + 2 * rows, rows * columns);
    return scaledRows(this.doubles(bytes.subarray(0, 2 * rows), 'f16', rows), integers, columns);
  }

  /** Convert n numbers of any floating type to doubles. */
  doubles(bytes, type, n) {
    this.clear();
    const to = this.allocate(8 * n), from = this.copy(bytes);
    this.check(this.x.doubles(to, from, types[type], n));
    return this.read(to, n);
  }
}
