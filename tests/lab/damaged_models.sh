#!/bin/sh
# damaged_models.sh -- test models and exported layers whose header does not match their data
#
#     tests/lab/damaged_models.sh PATH/TO/relpos        exit code 77: there is no CBLAS
#
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/../shared/checks.sh"
. tests/shared/lab.sh
make_stopped
make_model
prepare lab export "$T/run" --prompt 'We are met' -o "$T/x.safetensors"

# If the configuration does not match the arrays, the program must not allocate more than the size of the file.
sed 's/width = 16/width = 96/' "$T/model.safetensors" >"$T/lie.safetensors"
refused 1 'damaged: [0-9]+ bytes of arrays cannot be a model of' lab sample "$T/lie.safetensors"
sed 's/vocab = 256/vocab = 255/' "$T/model.safetensors" >"$T/lie.safetensors"
refused 1 'embedding.weight. has another shape' lab sample "$T/lie.safetensors"
sed 's/heads = 2/heads = 4/' "$T/model.safetensors" >"$T/lie.safetensors"
refused 1 'has another shape' lab sample "$T/lie.safetensors"
sed 's/seed = 1/seed = 2/' "$T/model.safetensors" >"$T/lie.safetensors"
refused 1 'damaged: its checksum' lab sample "$T/lie.safetensors"
size=$(($(wc -c <"$T/model.safetensors") - 4))
(head -c "$size" "$T/model.safetensors" && printf '\377\377\377\177') >"$T/lie.safetensors"
refused 1 'has -*nan at [0-9]+; weights must be finite' lab sample "$T/lie.safetensors"
# an invalid dtype makes an array unreadable: every command that needs it reports this, and training continues from the
# previous checkpoint
sed 's/"embedding.weight":{"dtype":"F32"/"embedding.weight":{"dtype":"G32"/' "$T/model.safetensors" >"$T/lie.safetensors"
no_type='lie.safetensors: array "embedding.weight": it has the dtype .G32. .save it as F32'
refused 1 "$no_type" lab eval "$T/lie.safetensors"
refused 1 "$no_type" lab sample "$T/lie.safetensors"
refused 1 "$no_type" lab inspect "$T/lie.safetensors"
refused 1 "$no_type" lab export "$T/lie.safetensors" --model -o "$T/nothing.safetensors"
refused 1 "$no_type" lab export "$T/lie.safetensors" --prompt 'We are' -o "$T/nothing.safetensors"
explain_refused 1 "$no_type" --model "$T/lie.safetensors" --text 'one two'
cp -r "$T/three" "$T/no_type"
sed -i 's/"optimizer.v.norm.weight":{"dtype":"F32"/"optimizer.v.norm.weight":{"dtype":"G32"/' "$T/no_type/checkpoint.safetensors"
run lab train "$T/small.lab" -o "$T/no_type" --resume
check 'the previous one is used' '0 1' "$code $(grep -cE 'has the dtype .G32. .*using the previous checkpoint, of step [0-9]+; the damaged file is now damaged.safetensors' "$T/err")"
same 'the same bytes' "$T/run/checkpoint.safetensors" "$T/no_type/checkpoint.safetensors"
for name in q k v; do # the same in an exported layer
    sed "s/\"$name\":{\"dtype\":\"F32\"/\"$name\":{\"dtype\":\"G32\"/" "$T/x.safetensors" >"$T/odd.safetensors"
    explain_refused 1 "^relpos: array \"$name\": it has the dtype .G32. .save it as F32.*type.\$" --input "$T/odd.safetensors"
    command="relpos attend, $name of type G32"
    "$program" attend "$T/odd.safetensors" -o "$T/nothing.safetensors" >"$T/out" 2>"$T/err"
    check 'it is refused' "1 1" "$? $(grep -c "array \"$name\": it has the dtype 'G32'" "$T/err")"
done
check 'nothing was written' no "$([ -e "$T/nothing.safetensors" ] && echo yes || echo no)"

mkdir "$T/resumed" && cp "$T/model.safetensors" "$T/resumed/checkpoint.safetensors"
refused 1 'no averages of the optimizer' lab train "$T/small.lab" -o "$T/resumed" --resume

finish
