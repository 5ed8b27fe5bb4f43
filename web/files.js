// files.js -- reads .safetensors and .npz files of the user, which may be malformed or malicious; writes .safetensors.
// SPDX-License-Identifier: Apache-2.0

const kinds = {
  F32: ['f32', 4],
  F64: ['f64', 8],
  F16: ['f16', 2],
  BF16: ['bf16', 2]
};
const descriptions = {
  '<f4': ['f32', 4],
  '<f8': ['f64', 8],
  '<f2': ['f16', 2]
};
const maxBytes = 256e6;           // max size of a file, and of its unpacked arrays together
const maxNumbers = maxBytes / 8;  // max numbers in all arrays, which become doubles

const refuse = why => {
  throw new Error(`the file cannot be used: ${why}`);
};
const isSize = n => Number.isSafeInteger(n) && n >= 0;
const count = shape => shape.reduce((a, b) => a * b, 1);

function safetensors(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength),
        size = Number(view.getBigUint64(0, true));
  if (!(size <= bytes.length - 8))
    refuse(`its header should have ${size} bytes, but the file has only ${bytes.length}`);
  let head;
  try {
    head = JSON.parse(new TextDecoder('utf-8', {fatal: true}).decode(bytes.subarray(8, 8 + size)));
  } catch { refuse('its header is not JSON, as in a .safetensors file'); }
  if (typeof head !== 'object' || head === null || Array.isArray(head)) refuse('its header is not a JSON object');
  const arrays = new Map(), ranges = [], data = bytes.subarray(8 + size);
  for (const [name, entry] of Object.entries(head)) {
    if (name === '__metadata__') continue;
    const offsets = entry?.data_offsets, [first, last] = Array.isArray(offsets) ? offsets : [], shape = entry?.shape;
    if (!Array.isArray(shape) || offsets?.length !== 2 || !shape.every(isSize) || !isSize(first) || !isSize(last) ||
      first > last || last > data.length)
      refuse(`the shape or position of array “${name}” does not fit the file`);
    ranges.push([first, last, name]);
    const kind = Object.hasOwn(kinds, entry.dtype) && kinds[entry.dtype];
    if (!kind) continue;  // ignore arrays of other types, such as masks
    if (count(shape) * kind[1] !== last - first)
      refuse(`array “${name}” of shape ${shape.join('×')} should have ${count(shape) * kind[1]} bytes and has ${
        last - first}`);
    arrays.set(name, {shape, type: kind[0], bytes: data.subarray(first, last)});
  }
  let end = 0;
  for (const [first, last, name] of ranges.sort(([a, b], [c, d]) => a - c || b - d)) {
    if (first !== end)
      refuse(`array “${name}” begins at byte ${first} of the data, but the array before it ends at ${end}`);
    end = last;
  }
  if (end !== data.length) refuse(`its arrays end at byte ${end} of the data, which has ${data.length} bytes`);
  let tokens = null;
  try {
    const found = JSON.parse(head.__metadata__?.tokens ?? 'null');
    if (Array.isArray(found) && found.every(token => typeof token === 'string')) tokens = found;
  } catch { /* without valid names, number the tokens */
  }
  const {options} = head.__metadata__ ?? {};
  return {arrays, tokens, options: typeof options === 'string' ? options : ''};
}

/** Read NumPy strings of a fixed length in UTF-32. Return null if a string is not valid Unicode. */
function strings(bytes, characters, little) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength), found = [];
  try {
    for (let at = 0; at < bytes.length; at += 4 * characters)
      found.push(String.fromCodePoint(...Array.from({length: characters}, (_, n) => view.getUint32(at + 4 * n, little)))
                   .replace(/\0+$/, ''));
  } catch { return null; }
  return found;
}

function npy(bytes, name) {
  if (bytes.length < 12 || String.fromCharCode(...bytes.subarray(1, 6)) !== 'NUMPY' || bytes[0] !== 0x93)
    refuse(`its entry “${name}” is not a NumPy array`);
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength), wide = bytes[6] > 1,
        start = wide ? 12 : 10, size = wide ? view.getUint32(8, true) : view.getUint16(8, true);
  if (start + size > bytes.length) refuse(`the header of “${name}” is longer than the file`);
  const head = new TextDecoder('latin1').decode(bytes.subarray(start, start + size));
  const descr = /'descr':\s*'([^']*)'/.exec(head)?.[1], order = /'fortran_order':\s*(True|False)/.exec(head)?.[1],
        dims = /'shape':\s*\(([^)]*)\)/.exec(head)?.[1];
  if (descr === undefined || order === undefined || dims === undefined) refuse(`the header of “${name}” is not valid`);
  const shape = dims.split(',').map(s => s.trim()).filter(Boolean).map(Number),
        kind = Object.hasOwn(descriptions, descr) && descriptions[descr];
  const characters = +/^[<>]U([1-9]\d*)$/.exec(descr)?.[1];
  if (characters && shape.length === 1 && shape[0] * characters * 4 === bytes.length - start - size)
    return {strings: strings(bytes.subarray(start + size), characters, descr[0] === '<')};
  if (!kind) return null;
  if (!shape.every(isSize)) refuse(`the shape of “${name}” is not valid`);
  if (order === 'True' && shape.length > 1) refuse(`“${name}” is in Fortran order: save numpy.ascontiguousarray of it`);
  if (count(shape) * kind[1] !== bytes.length - start - size)
    refuse(`“${name}” of shape ${shape.join('×')} should have ${count(shape) * kind[1]} bytes and has ${
      bytes.length - start - size}`);
  return {shape, type: kind[0], bytes: bytes.slice(start + size)};
}

async function inflate(bytes, size, name) {
  const reader = new Blob([bytes]).stream().pipeThrough(new DecompressionStream('deflate-raw')).getReader(),
        result = new Uint8Array(size);
  let at = 0;
  try {
    for (;;) {
      const {done, value} = await reader.read();
      if (done) break;
      if (at + value.length > size) throw new Error('too long');
      result.set(value, at);
      at += value.length;
    }
  } catch {
    reader.cancel().catch(() => {});
    refuse(`its entry “${name}” cannot be unpacked`);
  }
  return at === size ? result : refuse(`its entry “${name}” unpacks to ${at} bytes instead of ${size}`);
}

async function npz(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  let end = bytes.length - 22;
  while (end >= Math.max(0, bytes.length - 65557) && view.getUint32(end, true) !== 0x06054b50) end--;
  if (end < 0 || view.getUint32(end, true) !== 0x06054b50)
    refuse('it begins like an .npz file, but its end is missing');
  const arrays = new Map(), text = new TextDecoder();
  let total = 0, tokens = null;
  for (let n = view.getUint16(end + 10, true), at = view.getUint32(end + 16, true); n > 0; n--) {
    if (at + 46 > bytes.length || view.getUint32(at, true) !== 0x02014b50) refuse('its list of arrays is damaged');
    const method = view.getUint16(at + 10, true), packed = view.getUint32(at + 20, true),
          size = view.getUint32(at + 24, true), length = view.getUint16(at + 28, true),
          local = view.getUint32(at + 42, true);
    const name = text.decode(bytes.subarray(at + 46, at + 46 + length)).replace(/\.npy$/, '');
    at += 46 + length + view.getUint16(at + 30, true) + view.getUint16(at + 32, true);
    if (packed === 0xffffffff || local === 0xffffffff) refuse(`“${name}” is in zip64: save it as .safetensors`);
    if (local + 30 > bytes.length || view.getUint32(local, true) !== 0x04034b50)
      refuse(`the position of “${name}” is outside the file`);
    const start = local + 30 + view.getUint16(local + 26, true) + view.getUint16(local + 28, true);
    if (start + packed > bytes.length || (total += size) > maxBytes)
      refuse(`“${name}” is larger than the file, or than ${maxBytes / 1e6} MB`);
    if (method !== 0 && method !== 8) refuse(`“${name}” has a compression that NumPy does not use`);
    const array = npy(
      method ? await inflate(bytes.subarray(start, start + packed), size, name) : bytes.subarray(start, start + packed),
      name);
    if (array?.strings !== undefined) tokens = name === 'tokens' ? array.strings : tokens;
    else if (array) arrays.set(name, array);
  }
  return {arrays, tokens, options: ''};
}

/** Read a File. Return {arrays: Map of name -> {shape, type, bytes}, tokens, options written by relpos lab export}.
 * Throw an Error with the reason if the file cannot be used. */
export async function readArrays(file) {
  if (file.size > maxBytes) refuse(`it has ${file.size} bytes, at most ${maxBytes} are possible`);
  const bytes = new Uint8Array(await file.arrayBuffer());
  if (bytes.length < 22) refuse(`it has only ${bytes.length} bytes, too few for an .npz or .safetensors file`);
  const found = await (bytes[0] === 0x50 && bytes[1] === 0x4b ? npz(bytes) : safetensors(bytes));
  const all = [...found.arrays.values()].reduce((sum, {shape}) => sum + count(shape), 0);
  return all <= maxNumbers ? found : refuse(`it has ${all} numbers, at most ${maxNumbers} are possible`);
}

/** Return a .safetensors file with the arrays {name: {shape, data, type}}, of which type i32 has int32_t and all others
 * have doubles. */
export function safetensorsOf(arrays, tokens) {
  const head = Object.assign(Object.create(null), {__metadata__: {tokens: JSON.stringify(tokens)}});
  let at = 0;
  const all = Object.entries(arrays).sort(([, a], [, b]) => (a.type === 'i32') - (b.type === 'i32'));  // aligned
  for (const [name, {shape, data, type}] of all)
    head[name] = type === 'i32' ? {dtype: 'I32', shape, data_offsets: [at, at += 4 * data.length]} :
                                  {dtype: 'F64', shape, data_offsets: [at, at += 8 * data.length]};
  const text = new TextEncoder().encode(JSON.stringify(head)), pad = (8 - text.length % 8) % 8,
        size = new DataView(new ArrayBuffer(8));
  size.setBigUint64(0, BigInt(text.length + pad), true);
  return new Blob([
    size.buffer, text, ' '.repeat(pad),
    ...all.map(({1: {data, type}}) => (type === 'i32' ? Int32Array : Float64Array).from(data))
  ]);
}
