// unpack.js -- unpacks the compressed parts of the page. explorer.html has it outside of the compressed script, to
// start that script. SPDX-License-Identifier: Apache-2.0

/** Return the bytes of a script element that bundle.py packed: compressed, and then each four bytes as five digits of
 * base 85, first the highest. The digit d is the character with code 40 + d, but ~ replaces <, so that no text is HTML.
 * */
export async function unpack(id) {
  const text = document.getElementById(id).textContent, size = text.length, bytes = new DataView(new ArrayBuffer(size));
  for (let from = 0, to = 0; from < size; to += 4) {
    let word = 0;
    for (const end = from + 5; from < end; from++) {
      const code = from < size ? text.charCodeAt(from) : 124;
      word = 85 * word + (code === 126 ? 20 : code - 40);
    }
    bytes.setUint32(to, word);
  }
  const packed = new Uint8Array(bytes.buffer, 0, Math.floor(0.8 * size));
  return new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream('deflate-raw'))).arrayBuffer();
}

/** Say why the page cannot work. */
export function failed(error) {
  document.documentElement.dataset.ready = 'not';
  document.getElementById('wait')?.replaceChildren(`The library could not start: ${
    error.message} (use Chrome or Edge 111, Firefox 113, Safari 16.4, or a later version)`);
  throw error;
}

/** Run the compressed script of the page. */
export async function start() {
  const textContent = new TextDecoder().decode(await unpack('packed-script'));
  document.body.append(Object.assign(document.createElement('script'), {id: 'script', type: 'module', textContent}));
}
