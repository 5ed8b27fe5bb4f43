#!/bin/sh
# encoder.sh -- test relpos embed, classify and rerank with the tiny models of tests/encoder/texts, against sentence-transformers
#
#     tests/cli/encoder.sh PATH/TO/relpos
#
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/../shared/checks.sh"
data=tests/encoder/texts

python3 - "$data" "$T" <<'PY'
import csv, json, pathlib, sys
data, to = map(pathlib.Path, sys.argv[1:])
texts = json.load(open(data / "search/expected.json"))["texts"]
(to / "lines.txt").write_text("".join(t + "\n" for t in texts))
(to / "texts.jsonl").write_text("".join(json.dumps({"id": n, "text": t}) + "\n" for n, t in enumerate(texts)))
(to / "titles.jsonl").write_text("".join(json.dumps({"text": "x", "title": t}) + "\n" for t in texts))
for suffix, mark in (("csv", ","), ("tsv", "\t")):
    with open(to / f"table.{suffix}", "w", newline="") as f:
        rows = csv.writer(f, delimiter=mark)
        rows.writerow(["id", "title"])
        rows.writerows([n, t] for n, t in enumerate(texts))
pairs = json.load(open(data / "rank/expected.json"))
(to / "pairs.txt").write_text("".join(f"{a}\t{b}\n" for a, b in pairs["texts"]))
(to / "pairs.jsonl").write_text("".join(json.dumps({"q": a, "d": b}) + "\n" for a, b in pairs["texts"]))
with open(to / "many.csv", "w", newline="") as f:
    rows = csv.writer(f)
    rows.writerow(["note", "title"])
    rows.writerow(['a "quoted" one, with\ntwo lines', "the cat, the dog"])
    rows.writerow(["", 'where "is" the\ndog?'])
PY

# close WHAT FILE KEY FILE: compare vectors, one JSON object a line, with those of a key of expected.json
close()
{
    check "$1" close "$(python3 - "$2" "$3" "$4" <<'PY'
import json, sys
right = json.load(open(sys.argv[1]))
found = [json.loads(line)["vector"] for line in open(sys.argv[3])]
rows = right[sys.argv[2]]
far = max(abs(a - b) for x, y in zip(found, rows, strict=True) for a, b in zip(x, y, strict=True))
print("close" if far <= 8 * right["error"] else far)
PY
)"
}

for file in lines.txt texts.jsonl; do
    ok embed $data/search "$T/$file" --type f32 -o "$T/made/v.jsonl"
    close "$file" $data/search/expected.json vectors "$T/made/v.jsonl"
done
for file in titles.jsonl table.csv table.tsv; do
    ok embed $data/search "$T/$file" --column title --type f32 -o "$T/made/v.jsonl"
    close "$file" $data/search/expected.json vectors "$T/made/v.jsonl"
done
for name in query document; do
    ok embed $data/asymmetric "$T/lines.txt" --type f32 --prompt $name -o "$T/made/v.jsonl"
    close "the prompt $name" $data/asymmetric/expected.json vectors.$name "$T/made/v.jsonl"
done
ok embed $data/asymmetric "$T/lines.txt" --type f32 --prefix 'where: ' -o "$T/made/p.jsonl"
ok embed $data/asymmetric "$T/lines.txt" --type f32 --prompt query -o "$T/made/q.jsonl"
same 'a prompt by --prefix' "$T/made/p.jsonl" "$T/made/q.jsonl"

# arrays: the same numbers, for any number of threads; from standard input too
ok embed $data/search "$T/lines.txt" -o "$T/made/1.npz" --threads 1
ok embed $data/search "$T/lines.txt" -o "$T/made/3.npz" --threads 3
same 'threads' "$T/made/1.npz" "$T/made/3.npz"
"$program" embed $data/search -o "$T/made/in.npz" <"$T/lines.txt"
same 'standard input' "$T/made/1.npz" "$T/made/in.npz"
ok embed $data/search "$T/lines.txt" -o "$T/made/v.safetensors"
check 'an empty file has no vectors' 0 "$(printf '' | "$program" embed $data/search -o "$T/made/none.npz" >/dev/null 2>&1; echo $?)"

# proteins: the hidden states are tested in test_encoder_texts.c; here the files, for folders, packed files and T5
fasta=tests/t5/data/proteins/proteins.fasta
# does ARGUMENT...: run the command, and check that it succeeds; it says on standard error what it does
does()
{
    run proteins "$@"
    check 'exit code' 0 "$code"
}
does $data/protein $fasta -o "$T/made/p.npz" --threads 1
says '^proteins: 6 proteins of 374 residues, the longest 164 \(sp\|Q1\|LAST\)$'
says '^proteins: esm, f16; '
says '^proteins: computed 6 proteins of 374 residues; 1 residue of 1 protein is not in the alphabet'
does $data/protein $fasta -o "$T/made/p3.npz" --threads 3 --memory 64M
same 'threads and batches' "$T/made/p.npz" "$T/made/p3.npz"
head -c 9000 "$T/made/p.npz" >"$T/made/p4.npz.part"
does $data/protein $fasta -o "$T/made/p4.npz"
says 'computed [1-5] proteins? of .*; [1-5] (was|were) already there'
same 'a run that continues' "$T/made/p.npz" "$T/made/p4.npz"
ok pack $data/protein --type f16 -o "$T/made/esm.relpos"
does "$T/made/esm.relpos" $fasta -o "$T/made/p5.npz"
same 'a packed file' "$T/made/p.npz" "$T/made/p5.npz"
does $data/protein $fasta -o "$T/made/p6.npz" --pool --dtype f32 --type f32
does tests/t5/data/proteins/prott5 $fasta -o "$T/made/t5.npz"
"$program" t5 proteins tests/t5/data/proteins/prott5 $fasta -o "$T/made/t5.2.npz" 2>/dev/null
same 'a T5' "$T/made/t5.2.npz" "$T/made/t5.npz"
refused 1 'it was written with relpos proteins: weights [0-9a-f]{16} as f16, family esm, residues of f16, but this run has .* means of f16' \
    proteins $data/protein $fasta -o "$T/made/p.npz" --pool
refused 1 'proteins: it is not a model of proteins: its model_type is mpnet' proteins $data/search $fasta -o "$T/kept/x.npz"
refused 1 'proteins: the model has no tokenizer' proteins tests/encoder/data/esm $fasta -o "$T/kept/x.npz"
refused 1 'the type of weights is "int4"' proteins $data/protein $fasta -o "$T/kept/x.npz" --type int4
refused 2 '--3di: the model is an encoder, but only ProstT5' proteins $data/protein $fasta -o "$T/kept/x.fasta" --3di
refused 2 '--family: only models of .relpos t5 proteins.' proteins $data/protein $fasta -o "$T/kept/x.npz" --family esm
refused 2 '--tokenizer: only models of .relpos t5 proteins.' proteins $data/protein $fasta -o "$T/kept/x.npz" --tokenizer x
refused 2 'proteins: no model was given \(write relpos proteins DIR FASTA' proteins
refused 1 'config.json: the model was read from this file' proteins $data/protein $fasta -o "$T/kept/x.npz" --skip-bad $data/protein/config.json
# ESM-1b has a table of positions: longer proteins are refused by name, or left out
mkdir "$T/esm1b"
cp tests/encoder/data/esm1b/*.safetensors tests/encoder/data/esm1b/config.json $data/protein/vocab.txt $data/protein/tokenizer_config.json "$T/esm1b"
printf '>a\nMKV\n>long\n%s\n>b\nMKL\n' "$(head -c 600 /dev/zero | tr '\0' A)" >"$T/long.fasta"
refused 1 'long.fasta: line 4: the protein long has more than 511 residues, which is the limit \(remove it\); the model takes no more \(leave it out with --skip-bad\)$' \
    proteins "$T/esm1b" "$T/long.fasta" -o "$T/kept/x.npz"
does "$T/esm1b" "$T/long.fasta" -o "$T/made/b.npz" --skip-bad "$T/made/skips"
check 'the long protein' '3	long' "$(cut -f 1,2 "$T/made/skips")"

# classify and rerank
ok classify $data/labels "$T/lines.txt" --type f32 --all
check 'lines of labels' 8 "$("$program" classify $data/labels "$T/lines.txt" | grep -c '^[a-z]*	0\.[0-9]*$')"
check 'JSON of labels' 8 "$("$program" classify $data/labels "$T/lines.txt" --all --json | grep -c '^{"negative": 0\.[0-9]*, "neutral": 0\.[0-9]*, "positive": 0\.[0-9]*}$')"
"$program" rerank $data/rank "$T/pairs.txt" --type f32 >"$T/scores"
check 'scores of pairs' close "$(python3 - $data/rank/expected.json "$T/scores" <<'PY'
import json, math, sys
right = json.load(open(sys.argv[1]))
found = [float(x) for x in open(sys.argv[2])]
far = max(abs(a - 1 / (1 + math.exp(-b[0]))) for a, b in zip(found, right["logits"], strict=True))
print("close" if far <= 8 * right["error"] + 1e-6 else far)
PY
)"
"$program" rerank $data/rank "$T/pairs.jsonl" --column q --pair d --type f32 >"$T/scores2"
same 'pairs of JSON lines' "$T/scores" "$T/scores2"
"$program" rerank $data/rank "$T/lines.txt" --query 'where is the cat' --top 3 >"$T/top"
check 'the best three, in order' "3 sorted" "$(wc -l <"$T/top") $(cut -f1 "$T/top" | sort -c -g -r 2>/dev/null && echo sorted)"
check 'a table with quotes and line breaks' 2 "$("$program" classify $data/labels "$T/many.csv" --column title | wc -l)"

# an empty second text is none in classify, and a text in rerank
printf 'the cat\t\n' >"$T/empty.txt"
printf '{"text": "the cat", "pair": ""}\n' >"$T/empty.jsonl"
printf 'text,pair\nthe cat,\n' >"$T/empty.csv"
"$program" classify $data/labels --text 'the cat' --all >"$T/alone"
for file in empty.txt empty.jsonl empty.csv; do
    "$program" classify $data/labels "$T/$file" --pairs --all >"$T/out"
    same "an empty second text in $file" "$T/alone" "$T/out"
    "$program" rerank $data/rank "$T/$file" --type f32 >"$T/out"
    check 'CrossEncoder.predict gives 0.3045 in f16' 0.304 "$(cut -c 1-5 "$T/out")"
done

# faulty TEXT PATTERN OPTION...: check the error of classify about a file with this text, whose name is in $faulty
faulty()
{
    printf "$1" >"$T/$faulty"
    faulty_pattern=$2
    shift 2
    refused 1 "$faulty_pattern" classify $data/labels "$T/$faulty" "$@"
}
faulty=faulty.jsonl
faulty '{"text": "a", "pair": 7}\n' 'line 1: "pair" is not a text \(name the key of the text with --column, that of the second with --pair\)' --pairs
faulty '{"text": "a"}\n' 'line 1: "b" is missing \(name the key of the text with --column, that of the second' --pair b
faulty '{"text": 7}\n' 'line 1: "text" is not a text \(name the key of the text with --column\)'
faulty '{"text": "a"}\n[1]\n' 'line 2: it is not an object \(each line must be a JSON object\)'
faulty '{"text": "a"}\n{"text": \n' 'line 2: the object has no end'
faulty '{"text": "a"} x\n' 'line 1: column 15: end of file expected near'
faulty ' \t\n' 'line 1: it is empty \(remove it'
faulty=faulty.csv
faulty 'text,text\na,b\n' 'line 1: two columns have the name "text" \(rename one, or choose another with --column\)'
faulty 'text,pair,pair\na,b,c\n' 'line 1: two columns have the name "pair" \(rename one, or choose another with --pair\)' --pairs
faulty 'text,x\na,b\n' 'line 1: there is no column "pair" \(choose one with --pair: text, x\)' --pairs
faulty 'text,x\na,b\n' 'line 1: there is no column "c" \(choose one with --pair: text, x\)' --pair c
faulty '"te"xt,b\na,b\n' 'line 1: text follows the quotes of column 1 \(write quotes in quotes twice\)$'
faulty 'text,b\na,"b" c\n' 'line 2: text follows the quotes of column 2'
faulty 'text,b\na,b,c\n' 'line 2: it has 3 values, but the first line 2'
faulty 'text,b\na,"b\n' 'line 2: a value in quotes has no end \(close the quotes\)'
printf 'text\n"a ""cat"""\n' >"$T/quotes.csv"
printf 'a "cat"\n' >"$T/quotes.txt"
"$program" classify $data/labels "$T/quotes.txt" --all >"$T/alone"
ok classify $data/labels "$T/quotes.csv" --all
same 'quotes in quotes' "$T/alone" "$T/out"

# the commands of docs/encoders.md
ok embed $data/search --text 'The cat sleeps.' -o "$T/made/cat.npz"
printf 'The cat sleeps.\nStocks fell.\n' >"$T/two"
check 'rerank of the page' 2 "$("$program" rerank $data/rank --query 'where is the cat' <"$T/two" | wc -l)"
check 'classify of the page' 1 "$(head -n 1 "$T/two" | "$program" classify $data/labels --all | wc -l)"

# a folder of CrossEncoder.save of sentence-transformers 6: the activation is in config_sentence_transformers.json
mkdir "$T/made/cross"
cp $data/rank/*.json $data/rank/model.safetensors "$T/made/cross/"
printf '[{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.base.modules.transformer.Transformer"}]\n' >"$T/made/cross/modules.json"
printf '{"transformer_task": "sequence-classification", "module_output_name": "scores"}\n' >"$T/made/cross/sentence_bert_config.json"
printf '{"activation_fn": "torch.nn.modules.linear.Identity", "default_prompt_name": null, "model_type": "CrossEncoder", "prompts": {}}\n' >"$T/made/cross/config_sentence_transformers.json"
"$program" rerank "$T/made/cross" "$T/pairs.txt" --type f32 >"$T/logits"
check 'logits of a CrossEncoder with Identity' close "$(python3 - $data/rank/expected.json "$T/logits" <<'PY'
import json, sys
right = json.load(open(sys.argv[1]))
found = [float(x) for x in open(sys.argv[2])]
far = max(abs(a - b[0]) for a, b in zip(found, right["logits"], strict=True))
print("close" if far <= 8 * right["error"] + 1e-6 else far)
PY
)"
ok pack "$T/made/cross" --type f32 -o "$T/made/cross.relpos"
"$program" rerank "$T/made/cross.relpos" "$T/pairs.txt" >"$T/logits2"
same 'a packed CrossEncoder' "$T/logits" "$T/logits2"
sed 's/Identity/Softmax/' "$T/made/cross/config_sentence_transformers.json" >"$T/other"
cp "$T/other" "$T/made/cross/config_sentence_transformers.json"
refused 1 'the activation of scores is "torch.nn.modules.linear.Softmax"' rerank "$T/made/cross" "$T/pairs.txt"

# only scores need the activation: vectors and labels do not, and --json has the labels
ok embed "$T/made/cross" "$T/lines.txt" -o "$T/made/softmax.npz"
sed 's/Softmax/Sigmoid/' "$T/other" >"$T/made/cross/config_sentence_transformers.json"
ok embed "$T/made/cross" "$T/lines.txt" -o "$T/made/sigmoid.npz"
same 'vectors of a CrossEncoder with another activation' "$T/made/softmax.npz" "$T/made/sigmoid.npz"
"$program" rerank "$T/made/cross" "$T/pairs.txt" --type f32 >"$T/sigmoids"
same 'Sigmoid' "$T/scores" "$T/sigmoids"
cp "$T/other" "$T/made/cross/config_sentence_transformers.json"
ok classify "$T/made/cross" "$T/pairs.txt" --pairs
ok pack "$T/made/cross" -o "$T/made/softmax.relpos"
refused 1 'the activation of scores is "torch.nn.modules.linear.Softmax"' rerank "$T/made/softmax.relpos" "$T/pairs.txt"
sed 's/"default_prompt_name": null/"default_prompt_name": "q"/; s/Softmax/Sigmoid/' "$T/other" >"$T/made/cross/config_sentence_transformers.json"
ok embed "$T/made/cross" "$T/lines.txt" -o "$T/made/prompt.npz"
refused 1 '"default_prompt_name" is not null' rerank "$T/made/cross" "$T/pairs.txt"

# labels that share a name are told apart by their numbers, and control characters cannot break lines
mkdir "$T/made/names"
cp $data/labels/*.json $data/labels/model.safetensors "$T/made/names/"
# names NAME NAME NAME: name the labels
names()
{
    python3 - "$T/made/names/config.json" "$@" <<'PY'
import json, sys
path, *names = sys.argv[1:]
config = json.load(open(path))
json.dump(config | {"id2label": dict(enumerate(names))}, open(path, "w"))
PY
}
names same other same
"$program" classify "$T/made/names" --text 'a cat' --all --json >"$T/out"
check 'an object with three keys' 'other same#0 same#2' "$(python3 -c 'import json, sys; print(*sorted(json.load(sys.stdin)))' <"$T/out")"
"$program" classify "$T/made/names" --text 'a cat' --all >"$T/out"
check 'and a line' 'same#0 other same#2' "$(cut -f 1,3,5 "$T/out" | tr '\t' ' ')"
names same same same
"$program" classify "$T/made/names" --text 'a cat' --all >"$T/out"
check 'three times' 'same#0 same#1 same#2' "$(cut -f 1,3,5 "$T/out" | tr '\t' ' ')"
names a 'a#0' a
refused 1 'two labels of id2label would have the name "a#0" \(rename one' classify "$T/made/names" --text 'a cat'
names 'two
lines' b c
"$program" classify "$T/made/names" --text 'a cat' --all >"$T/out"
check 'one line' '1 two\nlines' "$(wc -l <"$T/out") $(cut -f 1 "$T/out")"
printf '{"text": "two\\nlines"}\n{"text": "a\\r\\u001b[1m cat\\tsleeps"}\n' >"$T/lines.jsonl"
"$program" rerank $data/rank "$T/lines.jsonl" --query 'where is the cat' >"$T/out"
check 'rerank prints a line for each text' '2 a\r\x1b[1m cat	sleeps two\nlines' "$(wc -l <"$T/out") $(sort -n -k 2 -r "$T/out" | cut -f 3- | paste -s -d ' ')"
"$program" rerank $data/rank "$T/lines.jsonl" --query 'where is the cat' --json >"$T/out"
check 'JSON has the texts as they are' "['a\\r\\x1b[1m cat\\tsleeps', 'two\\nlines']" \
    "$(python3 -c 'import json, sys; print(sorted(json.loads(line)["text"] for line in sys.stdin))' <"$T/out")"

# an error about a text has its number in the file: a special token without a row in the embedding, in text 1,300 of 2,000
for model in search rank labels; do
    mkdir "$T/made/extra"
    cp -r $data/$model/* "$T/made/extra/"
    python3 - "$T/made/extra/tokenizer.json" <<'PY'
import json, sys
tokenizer = json.load(open(sys.argv[1]))
flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
tokenizer["added_tokens"].append({"id": 98, "content": "<extra>", "special": True} | flags)
json.dump(tokenizer, open(sys.argv[1], "w"))
PY
    for n in 5 700 1300; do
        awk -v n=$n 'BEGIN { for (k = 1; k <= 2000; k++) print k == n ? "the <extra> cat\tb" : "the cat\tb" }' >"$T/extra"
        wrong="text $n: token [0-9]* is 98; it must be from 0 to 97"
        case $model in
        search)
            rm -f "$T"/made/extra.npz*
            run embed "$T/made/extra" "$T/extra" -o "$T/made/extra.npz"
            says "^relpos: embed: $wrong"
            ;;
        rank)
            run rerank "$T/made/extra" "$T/extra"
            says "^relpos: rerank: $wrong"
            run rerank "$T/made/extra" "$T/extra" --query a
            says "^relpos: rerank: $wrong"
            ;;
        labels)
            run classify "$T/made/extra" "$T/extra" --pairs
            says "^relpos: classify: $wrong"
            ;;
        esac
    done
    rm -r "$T/made/extra"
done

# token types: only if the tokenizer's class gives them to the model
mkdir "$T/made/typeless"
cp $data/rank/*.json $data/rank/model.safetensors "$T/made/typeless/"
sed '/token_type_ids/d' $data/rank/tokenizer_config.json >"$T/made/typeless/tokenizer_config.json"
"$program" rerank "$T/made/typeless" "$T/pairs.txt" --type f32 >"$T/typeless"
check 'no token types' 1 "$(cmp -s "$T/scores" "$T/typeless" || echo 1)"
sed '/model_input_names/,/]/d; s/TokenizersBackend/DistilBertTokenizerFast/' $data/rank/tokenizer_config.json >"$T/made/typeless/tokenizer_config.json"
"$program" rerank "$T/made/typeless" "$T/pairs.txt" --type f32 >"$T/typeless2"
same 'DistilBertTokenizer gives no token types' "$T/typeless" "$T/typeless2"

# quotes within a value are no quotes around it
printf 'text\n5" pipe\n6" pipe\n"a ""b"" c"\n' >"$T/quotes.csv"
check 'a quote within a value' 3 "$("$program" classify $data/labels "$T/quotes.csv" | wc -l)"

# vocab.txt, as BERT's first folders have it
mkdir "$T/made/vocab"
cp $data/rank/config.json $data/rank/model.safetensors "$T/made/vocab/"
python3 - $data/rank "$T/made/vocab" <<'PY'
import json, pathlib, sys
rank, to = map(pathlib.Path, sys.argv[1:])
pieces = json.load(open(rank / "tokenizer.json"))["model"]["vocab"]
(to / "vocab.txt").write_text("".join(p + "\n" for p in sorted(pieces, key=pieces.get)))
names = {"cls_token": "[CLS]", "sep_token": "[SEP]", "unk_token": "[UNK]", "pad_token": "[PAD]", "mask_token": "[MASK]"}
(to / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "BertTokenizer", "model_max_length": 30} | names))
PY
"$program" rerank "$T/made/vocab" "$T/pairs.txt" --type f32 >"$T/scores5"
same 'vocab.txt' "$T/scores" "$T/scores5"
ok pack "$T/made/vocab" --type f32 -o "$T/made/vocab.relpos"
"$program" rerank "$T/made/vocab.relpos" "$T/pairs.txt" >"$T/scores6"
same 'vocab.txt in a packed file' "$T/scores" "$T/scores6"

# a model of the T5 family: as relpos t5 encode
ok embed tests/t5/sentence/new tests/t5/sentence/lines.txt -o "$T/made/t5.npz"
ok t5 encode tests/t5/sentence/new tests/t5/sentence/lines.txt -o "$T/made/t5encode.npz"
same 'a sentence-t5' "$T/made/t5.npz" "$T/made/t5encode.npz"

# packed files: the same bytes of vectors, one file, and its checksum
for type in f32 q8 bf16; do
    ok pack $data/search --type $type -o "$T/made/$type.relpos"
    has "^$T/made/$type.relpos: 0.0[0-9]+ MB, of which 0.0[0-9]+ MB are weights as $type( \(as f32 they take 0.0[0-9]+ MB\))?$"
    check 'f32 is not compared with itself' "$(test $type = f32; echo $?)" "$(grep -c 'as f32 they' "$T/out")"
    ok embed "$T/made/$type.relpos" "$T/lines.txt" -o "$T/made/a.npz"
    ok embed $data/search "$T/lines.txt" --type $type -o "$T/made/b.npz"
    same "packed as $type" "$T/made/a.npz" "$T/made/b.npz"
done
ok pack $data/rank -o "$T/made/rank.relpos"
"$program" rerank "$T/made/rank.relpos" "$T/pairs.txt" >"$T/scores3"
"$program" rerank $data/rank "$T/pairs.txt" --type q8 >"$T/scores4"
same 'packed: scores' "$T/scores3" "$T/scores4"

# a packed file has the modules and the tokenizer of its folder, whatever its form: a Transformer in a subfolder, two Dense modules
mkdir -p "$T/made/deep/0_Transformer" "$T/made/deep/3_Dense"
cp -r $data/asymmetric/* "$T/made/deep/"
for file in config.json model.safetensors tokenizer.json tokenizer_config.json sentence_bert_config.json; do
    mv "$T/made/deep/$file" "$T/made/deep/0_Transformer/"
done
python3 - "$T/made/deep" <<'PY'
import json, pathlib, struct, sys
folder = pathlib.Path(sys.argv[1])
modules = json.load(open(folder / "modules.json"))
modules[0]["path"] = "0_Transformer"
modules.append(modules[-1] | {"idx": 3, "name": "3", "path": "3_Dense"})
modules.append({"idx": 4, "name": "4", "path": "4_Normalize", "type": "sentence_transformers.models.Normalize"})
json.dump(modules, open(folder / "modules.json", "w"))
config = json.load(open(folder / "2_Dense/config.json"))
columns, rows = config["out_features"], 5
json.dump(config | {"in_features": columns, "out_features": rows, "bias": False}, open(folder / "3_Dense/config.json", "w"))
size = 4 * rows * columns
header = json.dumps({"linear.weight": {"dtype": "F32", "shape": [rows, columns], "data_offsets": [0, size]}}).encode()
numbers = b"".join(struct.pack("<f", (k * 37 % 101) / 64 - 0.75) for k in range(rows * columns))
(folder / "3_Dense/model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + numbers)
PY
for model in $data/asymmetric "$T/made/deep" "$T/made/deep/"; do
    ok pack "$model" -o "$T/made/dense.relpos"
    has "^$T/made/dense.relpos: 0.0[0-9]+ MB, of which 0.0[0-9]+ MB are weights as q8 \(as f32 they take 0.0[0-9]+ MB\)$"
    for name in query document; do
        ok embed "$T/made/dense.relpos" "$T/lines.txt" --prompt $name -o "$T/made/a.npz"
        ok embed "$model" "$T/lines.txt" --prompt $name --type q8 -o "$T/made/b.npz"
        same "packed: $model, $name" "$T/made/a.npz" "$T/made/b.npz"
    done
done
refused 1 'the model was read from this file' pack "$T/made/q8.relpos" -o "$T/made/q8.relpos"
refused 1 'its weights are q8 and not f32' embed "$T/made/q8.relpos" "$T/lines.txt" --type f32 -o "$T/kept/v.npz"
refused 1 'it is not a file of .relpos pack. of this version' embed $data/search/model.safetensors "$T/lines.txt" -o "$T/kept/v.npz"

# a packed file of another kind is named, with its commands
ok t5 pack tests/t5/data/encoder -o "$T/made/t5.relpos"
for words in 'info' 'tokenize --text a' 'generate --text a' 'verify' "pack -o $T/kept/t5.relpos"; do
    # shellcheck disable=SC2086
    refused 1 'q8.relpos: it is a packed encoder \(use relpos embed, classify, rerank or proteins\)$' \
        t5 ${words%% *} "$T/made/q8.relpos" ${words#"${words%% *}"}
done
for words in 'classify' 'rerank --query a' "pack -o $T/kept/t5.relpos"; do
    # shellcheck disable=SC2086
    refused 1 't5.relpos: it is a packed model of the T5 family \(use the commands of relpos t5\)$' \
        ${words%% *} "$T/made/t5.relpos" ${words#"${words%% *}"}
done

# the checksum of a packed file
ok pack "$T/made/q8.relpos" --check
has "^$T/made/q8.relpos: the checksum is correct$"
check 'nothing else' 1 "$(wc -l <"$T/out" | tr -d ' ')"
python3 - "$T/made/q8.relpos" "$T/made/flipped.relpos" <<'PY'
import sys
data = bytearray(open(sys.argv[1], "rb").read())
data[-200] ^= 4
open(sys.argv[2], "wb").write(data)
PY
refused 1 'pack: the file has the checksum [0-9a-f]{16}, but had [0-9a-f]{16} when it was packed' pack "$T/made/flipped.relpos" --check
refused 1 'pack: the model was read from a folder, which has no checksum \(pack it first\)' pack $data/search --check
refused 2 '--check: it writes no file \(remove -o\)' pack "$T/made/q8.relpos" --check -o "$T/kept/x.relpos"
refused 2 '--check: the file has its type \(remove --type\)' pack "$T/made/q8.relpos" --check --type q8

# a packed file with a type that no encoder has
python3 - "$T/made/f32.relpos" "$T/made/int4.relpos" <<'PY'
import json, struct, sys
data = open(sys.argv[1], "rb").read()
size, = struct.unpack("<Q", data[:8])
header = json.loads(data[8:8 + size])
header["__metadata__"]["type"] = "int4"
text = json.dumps(header).encode()
text += b" " * (-(8 + len(text)) % 64)
open(sys.argv[2], "wb").write(struct.pack("<Q", len(text)) + text + data[8 + size:])
PY
refused 1 'its weights are int4, a type that encoders do not have' embed "$T/made/int4.relpos" "$T/lines.txt" -o "$T/kept/v.npz"

# the suffix decides the format, whatever its case; lines of other formats are no texts
for suffix in csv tsv; do
    upper=$(echo $suffix | tr a-z A-Z)
    cp "$T/table.$suffix" "$T/TABLE.$upper"
    ok embed $data/search "$T/TABLE.$upper" --column title --type f32 -o "$T/made/v.jsonl"
    close "a table .$upper" $data/search/expected.json vectors "$T/made/v.jsonl"
done
cp "$T/texts.jsonl" "$T/TEXTS.JsonL"
ok embed $data/search "$T/TEXTS.JsonL" --type f32 -o "$T/made/v.jsonl"
close 'a file .JsonL' $data/search/expected.json vectors "$T/made/v.jsonl"
for suffix in txt md log text py 2024; do
    cp "$T/lines.txt" "$T/as.$suffix"
    ok embed $data/search "$T/as.$suffix" --type f32 -o "$T/made/v.jsonl"
    close "lines in a file .$suffix" $data/search/expected.json vectors "$T/made/v.jsonl"
done
for wrong in 'json:one JSON document .*\.jsonl' 'JSON:one JSON document' 'ndjson:rename it' 'csv.gz:compressed' 'txt.XZ:compressed' \
    'zst:compressed' 'bz2:compressed' 'zip:archive' 'tar:archive' 'parquet:export it as \.csv' 'xlsx:export it as \.csv' 'npz:arrays' \
    'safetensors:arrays' 'pdf:export it as \.txt' 'fasta:relpos proteins' 'FA:relpos proteins' 'faa:relpos proteins' \
    'fasta.gz:relpos proteins' 'tab:rename it'; do
    cp "$T/lines.txt" "$T/other.${wrong%%:*}"
    refused 2 "other.${wrong%%:*}: .*${wrong#*:}" embed $data/search "$T/other.${wrong%%:*}" -o "$T/kept/v.npz"
    refused 2 "other.${wrong%%:*}: .*${wrong#*:}" classify $data/labels "$T/other.${wrong%%:*}" --column title
    refused 2 "other.${wrong%%:*}: .*${wrong#*:}" rerank $data/rank "$T/other.${wrong%%:*}" --query a
    refused 2 "other.${wrong%%:*}: .*${wrong#*:}" embed tests/t5/sentence/new "$T/other.${wrong%%:*}" -o "$T/kept/v.npz"
done
for file in texts.jsonl TABLE.CSV; do
    refused 2 "$file: .* this command reads lines" embed tests/t5/sentence/new "$T/$file" -o "$T/kept/v.npz"
done

# bytes that are not UTF-8, wherever they are
for bytes in '\351' '\303' '\355\240\200' '\300\200' '\364\220\200\200'; do
    one=$(printf "$bytes" | od -An -tx1 -N1 | tr -d ' ' | tr a-f A-F)
    wrong="byte 4, which is $one, is not UTF-8"
    printf "a cat\tb\ncaf$bytes b\tc\n" >"$T/latin.txt"
    printf "text,pair\ncaf$bytes b,c\n" >"$T/latin.csv"
    printf "text\tpair\ncaf$bytes b\tc\n" >"$T/latin.tsv"
    printf '{"text": "a", "pair": "b"}\n'"caf$bytes\n" >"$T/latin.jsonl"
    for latin in latin.txt latin.csv latin.tsv latin.jsonl; do
        refused 1 "line 2: $wrong .*iconv" embed $data/search "$T/$latin" -o "$T/kept/v.npz"
        refused 1 "line 2: $wrong .*iconv" classify $data/labels "$T/$latin" --pairs
        refused 1 "line 2: $wrong .*iconv" rerank $data/rank "$T/$latin" --query a
    done
    refused 1 "--text: $wrong" embed $data/search --text "$(printf "caf$bytes b")" -o "$T/kept/v.npz"
    refused 1 "--prefix: $wrong" embed $data/search --text a --prefix "$(printf "caf$bytes b")" -o "$T/kept/v.npz"
    refused 1 "--query: $wrong" rerank $data/rank "$T/lines.txt" --query "$(printf "caf$bytes b")"
done

# a name of two columns
printf 'text,text\na,b\n' >"$T/twice.csv"
printf 'q,d,d,d\na,b,c,d\n' >"$T/twice2.csv"
refused 1 'line 1: two columns have the name "text" \(rename one, or choose another with --column\)' embed $data/search "$T/twice.csv" -o "$T/kept/v.npz"
refused 1 'line 1: two columns have the name "d" \(rename one, or choose another with --pair\)' rerank $data/rank "$T/twice2.csv" --column q --pair d
refused 1 'line 1: two columns have the name "d" \(rename one' classify $data/labels "$T/twice2.csv" --column d
ok classify $data/labels "$T/twice2.csv" --column q

# refusals
refused 2 'embed: no model was given' embed
refused 2 'no output file was given' embed $data/search "$T/lines.txt"
refused 2 'the suffix is unknown' embed $data/search "$T/lines.txt" -o "$T/kept/v.txt"
refused 2 'the type "int4" is unknown \(use f32, f16, bf16, q8 or int8\)' embed $data/search "$T/lines.txt" -o "$T/kept/v.npz" --type int4
refused 2 '--column: a file of lines has no columns' embed $data/search "$T/lines.txt" --column x -o "$T/kept/v.npz"
refused 1 'line 1: there is no column "x" \(choose one with --column: id, title\)' embed $data/search "$T/table.csv" --column x -o "$T/kept/v.npz"
refused 1 'line 1: "x" is missing' embed $data/search "$T/texts.jsonl" --column x -o "$T/kept/v.npz"
refused 1 'has no tokenizer' embed tests/encoder/data/bert "$T/lines.txt" -o "$T/kept/v.npz"
refused 1 'has no classification head' classify $data/search "$T/lines.txt"
refused 1 'the model has 3 labels, but a reranker has one \(use relpos classify\)$' rerank $data/labels "$T/lines.txt" --query a
refused 1 'line 1: it has no tab' rerank $data/rank "$T/lines.txt"
refused 2 '--top: it needs --query' rerank $data/rank "$T/pairs.txt" --top 2
refused 1 'no prompt has the name "x"' embed $data/asymmetric "$T/lines.txt" --prompt x -o "$T/kept/v.npz"
printf 'a,b\n1,"open\n' >"$T/open.csv"
refused 1 'a value in quotes has no end' embed $data/search "$T/open.csv" --column b -o "$T/kept/v.npz"
printf 'a,b\n1\n' >"$T/short.csv"
refused 1 'line 2: it has 1 values, but the first line 2' embed $data/search "$T/short.csv" --column b -o "$T/kept/v.npz"
# a fault in a file of JSON lines has the number of its line, and says nothing of downloads
for wrong in '~it is empty \(remove it' '  ~it is empty \(remove it' '{"text": "a"~the object has no end' '{~the object has no end' \
    '{"text": "a"} x~column 1[0-9]: end of file expected' '{"text": NaN}~column [0-9]*: .*NaN' "{'text'}~column [0-9]*: "; do
    printf '{"text": "a"}\n%s\n{"text": "b"}\n' "${wrong%%~*}" >"$T/fault.jsonl"
    refused 1 "^relpos: line 2: ${wrong#*~}" embed $data/search "$T/fault.jsonl" -o "$T/kept/v.npz"
    check 'no advice about downloads' 0 "$(grep -c download "$T/err")"
done
printf '[1]\n' >"$T/list.jsonl"
refused 1 'line 1: it is not an object' embed $data/search "$T/list.jsonl" -o "$T/kept/v.npz"
finish
