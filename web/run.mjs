// run.mjs MODULE [ARGUMENT...] -- runs a WebAssembly program under node. The exit code is 77 if node does not support
// its instructions. SPDX-License-Identifier: Apache-2.0
import {readFileSync} from 'node:fs';
import {WASI} from 'node:wasi';

const bytes = readFileSync(process.argv[2]);
if (WebAssembly.validate(bytes)) {
  const wasi = new WASI({version: 'preview1', args: process.argv.slice(2), env: process.env, returnOnExit: true});
  const {instance} = await WebAssembly.instantiate(bytes, {wasi_snapshot_preview1: wasi.wasiImport});
  process.exitCode = wasi.start(instance);
} else {
  console.log(`skipped: node ${process.version} does not run ${process.argv[2]}`);
  process.exitCode = 77;
}
