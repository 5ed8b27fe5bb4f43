#!/bin/sh
# t5_sentence.sh -- test relpos t5 encode with model folders saved by sentence-transformers, against the vectors of its encode()
#
#     tests/cli/t5_sentence.sh PATH/TO/relpos
#
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/../shared/checks.sh"
data=tests/t5/sentence

# numbers FILE [PROMPT]: print the vectors of a file of JSON lines, one a line; with PROMPT, those of this prompt
numbers()
{
    grep -- "\"prompt\": ${2:-.*}, \"vector\"\|\"tokens\": .*\"vector\"" "$1" | sed 's/.*\[//; s/[],}]//g'
}

# close WHAT FILE FILE: check that two files of vectors differ by at most 3e-6 of the norm of each vector
close()
{
    paste "$2" "$3" | awk -v all="$(wc -l <"$3")" '{
        square = other = 0
        for (k = 1; k <= NF / 2; k++) { square += $k ^ 2; other += ($k - $(k + NF / 2)) ^ 2 }
        if (NF < 2 || NF % 2 || other > 9e-12 * square) { print "line " NR ": error " sqrt(other) " of " sqrt(square); wrong = 1; exit }
    } END { if (!wrong && (NR != all || NR == 0)) print NR " of " all " lines" }' >"$T/far"
    check "$1" '' "$(cat "$T/far")"
}

for folder in new old all; do
    for prompt in null '"query"' '"topic"'; do
        [ "$folder $prompt" = 'old "topic"' ] || [ "$folder $prompt" = 'old "query"' ] && continue
        numbers "$data/$folder.jsonl" "$prompt" >"$T/expected"
        name=$(echo "$prompt" | tr -d '"')
        [ "$name" != null ] || name=''
        # shellcheck disable=SC2086
        ok t5 encode $data/$folder $data/lines.txt --type f32 ${name:+--prompt $name} -o "$T/made/v.jsonl"
        numbers "$T/made/v.jsonl" >"$T/found"
        close "$folder, prompt $prompt" "$T/expected" "$T/found"
    done
done

# the default prompt is the prompt with its name, and the same text by --prefix; the prompt "document" is empty
vectors() # vectors NAME ARGUMENT...: write vectors of the folder NAME to $T/made/NUMBER.npz
{
    made=$((made + 1))
    folder=$data/$1
    shift
    ok t5 encode "$folder" $data/lines.txt -o "$T/made/$made.npz" "$@"
}
made=0
vectors all
vectors all --prompt topic
vectors all --prefix 'say the topic of it: '
vectors all --prompt document
vectors all --prefix ''
same 'the default prompt' "$T/made/1.npz" "$T/made/2.npz"
same 'a prompt by --prefix' "$T/made/1.npz" "$T/made/3.npz"
same 'an empty prompt' "$T/made/4.npz" "$T/made/5.npz"
check 'prompts differ' 1 "$(cmp -s "$T/made/1.npz" "$T/made/4.npz" || echo 1)"

# --pool none gives the hidden states of the folder without modules.json, all tokens and no prompt
cp -r $data/new "$T/made/plain"
rm "$T/made/plain/modules.json"
for pool in none mean; do
    ok t5 encode $data/new $data/lines.txt --pool $pool -o "$T/made/a.npz"
    ok t5 encode "$T/made/plain" $data/lines.txt --pool $pool -o "$T/made/b.npz"
    same "--pool $pool" "$T/made/a.npz" "$T/made/b.npz"
done
ok t5 encode "$T/made/plain" $data/lines.txt -o "$T/made/b.npz"
ok t5 encode $data/new $data/lines.txt --pool none -o "$T/made/a.npz"
same 'a folder without modules.json' "$T/made/a.npz" "$T/made/b.npz"
ok t5 encode $data/new $data/lines.txt --for flux -o "$T/made/a.npz"
ok t5 encode "$T/made/plain" $data/lines.txt --for flux -o "$T/made/b.npz"
same '--for' "$T/made/a.npz" "$T/made/b.npz"

# change FOLDER FILE SED: copy a folder to $T/made/bad, and change a file
change()
{
    rm -rf "$T/made/bad"
    cp -r "$data/$1" "$T/made/bad"
    [ $# -lt 3 ] || sed "$3" "$data/$1/$2" >"$T/made/bad/$2"
}

# truncate_dim keeps the first numbers of every vector
change new config_sentence_transformers.json '1s/{/{"truncate_dim": 3,/'
ok t5 encode "$T/made/bad" $data/lines.txt --type f32 -o "$T/made/v.jsonl"
numbers "$T/made/v.jsonl" >"$T/found"
numbers "$data/new.jsonl" null | cut -d ' ' -f 1-3 >"$T/expected"
close 'truncate_dim' "$T/expected" "$T/found"

# older versions named the file of max_seq_length after the kind of the model, and the first that is not empty is read
change old
echo '{}' >"$T/made/bad/0_Transformer/sentence_bert_config.json"
cp $data/old/0_Transformer/sentence_bert_config.json "$T/made/bad/0_Transformer/sentence_xlnet_config.json"
ok t5 encode $data/old $data/lines.txt -o "$T/made/a.npz"
ok t5 encode "$T/made/bad" $data/lines.txt -o "$T/made/b.npz"
same 'sentence_xlnet_config.json' "$T/made/a.npz" "$T/made/b.npz"

# an unknown key is named once, although every module has it
change new modules.json 's/"idx"/"new_key": 1, "idx"/'
run t5 encode "$T/made/bad" --text a -o "$T/made/x.npz"
check 'an unknown key' "relpos: note: $T/made/bad/modules.json: ignored the unknown key \"new_key\"" "$(cat "$T/err")"

bad()
{
    refused 1 "$1" t5 encode "$T/made/bad" --text a -o "$T/made/x.npz"
}
change new modules.json 's/modules.dense.Dense/modules.cnn.CNN/'
bad 'modules.json: the type sentence_transformers.base.modules.cnn.CNN of module 3 is not supported'
change new modules.json 's/sentence_transformers.base.modules.dense/own.code/'
bad 'the type own.code.Dense of module 3 is not supported'
change new modules.json 's/pooling.Pooling/normalize.Normalize/'
bad 'Normalize of module 2 is not supported'
change new modules.json 's/"2_Dense"/"..\/2_Dense"/'
bad 'is not the name of a folder beside this file'
change new modules.json 's/transformer.Transformer/word.WordEmbeddings/'
bad 'modules.json: it must list 2 to 16 modules, the first a Transformer'
change new modules.json 's/\[/{"a": [/'
bad 'modules.json: line [0-9]+, column [0-9]+: .*cut off'
change new 2_Dense/config.json 's/linear.Identity/activation.GELU/'
bad 'its activation_function, which is neither Identity nor Tanh, is not supported'
change new 2_Dense/config.json 's/"bias": false/"bias": true/'
bad '2_Dense: the tensor linear.bias is missing \(check'
change new 2_Dense/config.json 's/"out_features": 7/"out_features": 8/'
bad '2_Dense: the tensor linear.weight does not have the sizes'
change new 2_Dense/config.json 's/"in_features": 12/"in_features": 11/'
bad 'in_features must be 12'
change new 2_Dense/config.json 's/"bias"/"use_residual": true, "bias"/'
bad '2_Dense/config.json: "use_residual" is true, which is not supported: .* \(remove modules.json'
change new 1_Pooling/config.json 's/"mean"/"median"/'
bad 'the pooling_mode "median" is not supported'
change new
rm "$T/made/bad/1_Pooling/config.json"
bad '1_Pooling/config.json: it does not exist'
change new
rm "$T/made/bad/2_Dense/model.safetensors"
bad '2_Dense: '
change new config_sentence_transformers.json 's/"default_prompt_name": "query"/"default_prompt_name": "other"/'
bad 'default_prompt_name is "other", but prompts has no such text'
change old 0_Transformer/sentence_bert_config.json 's/false/true/'
bad '"do_lower_case" is true, which is not supported'
change old
rm -r "$T/made/bad/0_Transformer"
bad '0_Transformer: cannot be read: '
refused 1 '--prompt: no prompt has the name "x"' t5 encode $data/new --text a --prompt x -o "$T/made/x.npz"
refused 1 '--prompt: the model has no modules.json \(.*, or pass the text of the prompt with --prefix\)' t5 encode "$T/made/plain" --text a --prompt query -o "$T/made/x.npz"
refused 2 '--prompt: --prefix replaces the prompt' t5 encode $data/new --text a --prompt query --prefix a -o "$T/made/x.npz"
refused 2 '--prompt: with --tokens, lines have no text' t5 encode $data/new --text 5 --tokens --prompt query -o "$T/made/x.npz"
refused 2 '--pool: the value "max" is unknown \(use mean, first, last or none\)' t5 encode $data/new --text a --pool max -o "$T/made/x.npz"
refused 1 'modules.json of sentence-transformers cannot be packed' t5 pack $data/new -o "$T/made/packed"
ok t5 pack "$T/made/plain" -o "$T/made/packed"
ok t5 info $data/old
cp -r $data/old "$T/made/kept"
mv "$T/made/kept/2_Dense/pytorch_model.bin" "$T/made/kept/2_Dense/weights.npz"
ln -s weights.npz "$T/made/kept/2_Dense/pytorch_model.bin"
refused 1 'the model was read from this file' t5 encode "$T/made/kept" --text a -o "$T/made/kept/2_Dense/weights.npz"

finish
