// tables.js -- the trained T5 table of a layer of the laboratory's model, for several steps. SPDX-License-Identifier: Apache-2.0

/** Return the T5 term of a layer with its table, which bundle.py stores as f16. */
export function trainedTable(core, facts, layer) {
  const {shape, f16} = facts.lab.layers[layer]['t5.table'], bytes = Uint8Array.from(atob(f16), c => c.charCodeAt(0));
  return {
    text: 't5,buckets=32,max_distance=128,bidirectional=0',
    arrays: {table: {shape, data: core.doubles(bytes, 'f16', bytes.length / 2)}}
  };
}
