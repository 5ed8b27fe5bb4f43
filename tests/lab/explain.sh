#!/bin/sh
# explain.sh -- test relpos explain --model with the model included with relpos, and with terms that are not biases
#
#     tests/lab/explain.sh PATH/TO/relpos        exit code 77: there is no CBLAS
#
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/../shared/checks.sh"
. tests/shared/lab.sh
make_learned

model=lab/model/vim.safetensors
card=$(sed -n 's/^| 4,096 bytes | \([0-9.]*\) |.*/\1/p' lab/model/README.md)
ok lab eval $model --bytes 4096 --json
check 'its perplexity matches its card' 1 "$(near "$(number perplexity "$T/out")" "$card" 5e-4)"

# The model was trained with t5. It can be measured with terms that need no other learned arrays than it has.
ok lab eval $model --bytes 512 --json
trained=$(number perplexity "$T/out")
for position in none alibi rope; do
    ok lab eval $model --bytes 512 --json --position $position
    check "$position is worse" 1 "$(echo "$(number perplexity "$T/out") $trained" | awk '{ print ($1 > 1.2 * $2) }')"
done
refused 1 'position = relkey,left=4,right=4: it has other weights than t5' lab eval $model --position relkey,left=4,right=4

cp $model "$T/lie.safetensors"
printf 'XY' | dd of="$T/lie.safetensors" bs=1 seek=900000 conv=notrunc 2>"$T/dd"
refused 1 'damaged: its checksum' lab eval "$T/lie.safetensors" --bytes 4096

# The output of explain equals what relpos attend computes from the layer's q, k and table, summed by
# word.
text='the cursor is moved to the next line of the text'
explain()
{
    ok explain "$@"
}
array() # array NAME FILE: print an array of the JSON, one number per line
{
    grep -oE "\"$1\": \[[^]]*" "$2" | head -n 1 | sed 's/.*\[//' | tr -d ' ' | tr ',' '\n'
}
ok lab export $model --prompt "$text" --layer 1 -o "$T/x.safetensors"
options=$(sed "s|OUT|$T/y.safetensors --weights|; s|^relpos ||" "$T/out")
# shellcheck disable=SC2086
"$program" $options >"$T/out" 2>"$T/err" || check 'attend' '' "$(cat "$T/err")"
start=$(grep -aoE '"weights":[^}]*"data_offsets":\[[0-9]+' "$T/y.safetensors" | sed 's/.*\[//')
start=$(($(od -A n -t u8 -N 8 "$T/y.safetensors") + 8 + ${start:-0}))
explain --model $model --text "$text" --layer 1 --head 2 --word 7 --json
cp "$T/out" "$T/head.json"
grep -oE '"from": [0-9]+, "to": [0-9]+, "content": [^,]*, "position": [^,]*, "weight": [^}]*' "$T/head.json" |
    sed 's/"[a-z]*": //g; s/,//g' >"$T/words"
n=${#text}
od -A n -v -t f4 -w4 -j $((start + 4 * n * n * 2)) -N $((4 * n * n)) "$T/y.safetensors" >"$T/weights"
check 'the words up to the query' '8 0 3' "$(wc -l <"$T/words") $(head -n 1 "$T/words" | cut -d ' ' -f 1,2)"
for name in weights weights_plain bias scaled; do
    array $name "$T/head.json" >"$T/$name.json"
done
# awk expands the variables, not the shell
check 'weights of words, sums and products' 'ok' "$(awk -v n="$n" '
    function off(a, b) {return a > b ? a - b : b - a}
    BEGIN {words = 0}
    FILENAME ~ /words$/ {from[words] = $1; to[words] = $2; content[words] = $3; position[words] = $4; both[words++] = $5; i = $2 - 1}
    FILENAME ~ /weights$/ {w[x++] = $1}
    FILENAME ~ /weights.json$/ {true[a++] = $1}
    FILENAME ~ /weights_plain.json$/ {plain[b++] = $1}
    FILENAME ~ /bias.json$/ {bias[c++] = $1}
    FILENAME ~ /scaled.json$/ {scaled[d++] = $1}
    END {
        for (j = 0; j <= i; j++) {both_sum += plain[j] * exp(bias[j]); bias_sum += exp(bias[j])}
        for (j = 0; j <= i; j++) worst = off(plain[j] * exp(bias[j]) / both_sum, true[j]) > worst ? off(plain[j] * exp(bias[j]) / both_sum, true[j]) : worst
        if (worst > 1e-12) print "weights of bytes are no products: " worst
        for (k = 0; k < words; k++) {
            s = 0; p = 0; q = 0
            for (j = from[k]; j < to[k]; j++) {s += w[i * n + j]; p += exp(bias[j]) / bias_sum; q += plain[j]}
            if (off(s, both[k]) > 5e-5) print "word " k ": " both[k] ", and by attend " s
            if (off(p, position[k]) > 1e-12) print "word " k ": position " position[k] ", and by its biases " p
            if (off(q, content[k]) > 1e-12) print "word " k ": content " content[k] ", and by its bytes " q
            all += both[k]; all_p += position[k]; all_c += content[k]
        }
        if (off(all, 1) > 1e-12 || off(all_p, 1) > 1e-12 || off(all_c, 1) > 1e-12) print "sums: " all " " all_p " " all_c
        for (j = 0; j <= i; j++) {mean_b += bias[j] / (i + 1); mean_s += scaled[j] / (i + 1)}
        for (j = 0; j <= i; j++) {var_b += (bias[j] - mean_b) ^ 2 / (i + 1); var_s += (scaled[j] - mean_s) ^ 2 / (i + 1)}
        printf "%.9f %.9f\n", var_s, var_b >SPREAD
        print "ok"
    }' SPREAD="$T/spread" "$T/words" "$T/weights" "$T/weights.json" "$T/weights_plain.json" "$T/bias.json" "$T/scaled.json")"
check 'spread' "$(cat "$T/spread")" "$(grep -oE '"spread": [^}]*' "$T/head.json" | sed 's/[^0-9. ]//g' | awk '{printf "%.9f %.9f", $1, $2}')"

# The table of the heads: check the mean distance with the weights from attend, and check the position part of one head.
explain --model $model --text "$text" --word 7 --json
check 'all heads' 16 "$(grep -oE '"layer"' "$T/out" | wc -l)"
grep -oE '"layer": 1, "head": 2, [^}]*' "$T/out" | sed 's/"[a-z_]*": //g; s/,//g' >"$T/row"
check 'distance, own word, word before' 'ok' "$(awk -v n="$n" -v text="$text" '
    function off(a, b) {return a > b ? a - b : b - a}
    NR == FNR {distance = $3; own = $5; before = $6; next}
    {w[x++] = $1}
    END {
        for (i = 0; i < n; i++) {
            if (i == 0 || substr(text, i + 1, 1) == " ") {last = first; first = i}
            for (j = 0; j <= i; j++) {
                y = w[i * n + j] / n
                d += y * (i - j)
                if (j >= first) o += y
                else if (j >= last) b += y
            }
        }
        good = (off(d, distance) < 5e-5 && off(o, own) < 5e-5 && off(b, before) < 5e-5)
        print good ? "ok" : d " " distance " " o " " own " " b " " before
    }' "$T/row" "$T/weights")"
check 'the heaviest word' "$(sort -k 5 -g -r "$T/words" | head -n 1 | cut -d ' ' -f 5)" "$(cut -d ' ' -f 8 "$T/row")"
grep -oE '"distance": [^,]*, "position": [^,]*' "$T/out" | sed 's/"[a-z]*": //g; s/,//g' >"$T/heads"
printf '%s' "$text" >"$T/text.txt"
ok lab inspect $model --text "$T/text.txt" --length "$n" --json
check 'part of position and distance, as in inspect' '16 0' "$(grep -oE '"share":[^,]*,"distance":[^,]*' "$T/out" |
    sed 's/"[a-z]*"://g; s/,/ /' | paste -d ' ' "$T/heads" - |
    awk '{if (($1 - $4) ^ 2 > 1e-18 || ($2 - $3) ^ 2 > 1e-18) wrong++} END {print NR, wrong + 0}')"

# the output as text, with spaces around words, and as a picture
explain --model $model --text "$text"
check 'a table of 16 heads in 80 columns' '16 0' "$(grep -cE '^ +[0-3] +[0-3] .* %' "$T/out") $(grep -cE '.{81}' "$T/out")"
explain --model $model --text "$text" --head 2 --layer 1 --word 7
check '80 columns' 0 "$(grep -cE '.{81}' "$T/out")"
explain --model $model --text ' one  two ' --head 0 --json
check 'spaces belong to the next word' '0 4 4 9 9 10' "$(grep -oE '"from": [0-9]+, "to": [0-9]+, "content"' "$T/out" | tr -d -c '0-9 \n' | awk '{printf "%s%s %s", (NR > 1) ? " " : "", $1, $2}')"
explain --model $model --text 'a b c d e f g h i j k l m n' --head 0 --brief
check 'twelve words' 12 "$(grep -cE '^ +[0-9]+  [a-n] ' "$T/out")"
explain --model $model --text 'a b c d e f g h i j k l m n' --head 0 --brief --all
check 'all words' 14 "$(grep -cE '^ +[0-9]+  [a-n] ' "$T/out")"
explain --model $model --text "$text" --head 0 --brief -o "$T/head.svg"
check 'a picture' yes "$(grep -q 'Attention weights of layer 0, head 0: t5' "$T/head.svg" && echo yes)"

# terms other than biases: rope rotates the vectors, so position cannot be separated from content; vectors for keys can
explain --model "$T/run" --text 'We are met' --head 1 --json
check 'rope' '"position": null "content": null' "$(grep -oE '"to": 10, "content": [^,]*, "position": [^,]*|"spread": ..content": null' "$T/out" |
    grep -oE '"(position|content)": null' | tr '\n' ' ' | sed 's/ $//')"
explain --model "$T/run" --text 'We are met' --head 1
check 'rope, as text' 1 "$(grep -c 'unrotated shows the weights without rope' "$T/out")"
explain --model "$T/learned" --text 'We are met' --head 1
check 'added positions' 1 "$(grep -c '^The model adds positions to its embedding' "$T/out")"
for position in relkey,left=4,right=0+relval,left=4,right=0 xl none sink+alibi; do
    ok lab train "$T/small.lab" -o "$T/at.$position" --set position=$position --set steps=3
    explain --model "$T/at.$position" --text 'We are met' --head 1 --json
    grep -oE '"content": [^,]*, "position": [^,]*, "weight": [^}]*' "$T/out" | sed 's/"[a-z]*": //g; s/,//g' >"$T/words"
    check 'sums; a sink gets a part' "1.000000 1.000000 $([ "$position" = sink+alibi ] && echo less || echo whole)" \
        "$(awk '{c += $1; p += $2; w += $3} END {printf "%.6f %.6f %s", c, p, (w < 0.9999999) ? "less" : (w < 1.0000001) ? "whole" : w}' "$T/words")"
    explain --model "$T/at.$position" --text 'We are met'
done

# A model in which some layers have no terms: a layer without terms has no position part, but the next layer has one.
ok lab train "$T/small.lab" -o "$T/nope" --set position=alibi --set layers=3 --set nope_every=2 --set steps=3
explain --model "$T/nope" --text 'We are met'
check 'no part of position in layer 1 alone' '0 1 2' "$(awk '$2 == 0 && $5 == "%" {printf "%s%s", ($4 == 0) == ($1 == 1) ? "" : "wrong ", $1; if ($1 < 2) printf " "}' "$T/out")"
explain --model "$T/nope" --text 'We are met' --layer 1 --head 0
check 'no term' 1 "$(grep -c 'with no term' "$T/out")"

# errors
explain_refused 2 'model needs a text .give --text' --model $model
explain_refused 2 'model needs a text .give --text' --model $model --text ''
explain_refused 2 '^relpos: --text: it has 1025 bytes .give at most 1024' --model $model --text "$(printf '%1025d' 1)"
explain_refused 2 '^relpos: --word: 2 is out of range .0 to 1' --model $model --text 'one two' --word 2
explain_refused 2 '^relpos: --layer: 4 is out of range .0 to 3' --model $model --text 'one two' --layer 4
explain_refused 2 '^relpos: --head: 4 is out of range .0 to 3' --model $model --text 'one two' --head 4
explain_refused 2 '^relpos: --word: "x"' --model $model --text 'one two' --word x
explain_refused 1 'nothing.safetensors: .*cannot be opened' --model "$T/nothing.safetensors" --text 'one two'
explain_refused 1 'it is not a model of relpos lab: its metadata has no relpos.lab .relpos lab train' --model "$T/x.safetensors" --text 'one two'
explain_refused 1 'there are 16 learned positions, but the length is 17 .*shorter text' --model "$T/learned" --text '12345678 12345678'
explain_refused 2 'a model defines the terms' --model $model --text 'one two' --bias alibi
explain_refused 2 'a model defines the terms' --model $model --text 'one two' --no-bias
explain_refused 2 'a model defines the terms' --model $model --text 'one two' --causal
explain_refused 2 'word selects the query' --model $model --text 'one two' --query 1
explain_refused 2 'omit the sentence' --model $model --text 'one two' three
explain_refused 2 'omit --input' --model $model --text 'one two' --input "$T/x.safetensors"
explain_refused 2 'need a model' --text 'one two'
explain_refused 2 'need a model' --layer 1
explain_refused 2 'needs one head' --model $model --text 'one two' -o "$T/all.svg"
explain_refused 2 'needs one head' --model $model --text 'one two' --brief
explain_refused 2 'needs one head' --model $model --text 'one two' --outputs
RELPOS_BLAS=/nothing.so explain_refused 1 'install Debian.s libopenblas0' --model $model --text 'one two'

finish
