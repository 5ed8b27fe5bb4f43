/* command.c -- relpos tutorial: replay a text.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/cli.h"
#include "cli/tutorial/tutorial.h"
#include <string.h>

enum { JSON = CLI_FIRST_KEY };

static const cli_option options[] = {
    {"json", JSON, NULL, "print one JSON object"},
    {0},
};

static const tutorial *const tutorials[] = {&tutorial_s0, &tutorial_s1, &tutorial_s2, &tutorial_s3, &tutorial_s4};
enum { N_TUTORIALS = sizeof tutorials / sizeof *tutorials, TEXT = 2048 };

static int on_option(void *context, int key, const char *value)
{
    (void)key, (void)value;
    *(bool *)context = true;
    return CLI_OK;
}

/* Print a JSON string, or null. */
static void print_json(const char *text)
{
    if (text)
        cli_json_string(stdout, text);
    else
        fputs("null", stdout);
}

static void print_step_json(const tutorial_step *s, bool first)
{
    char right[TEXT];
    s->compute(right, sizeof right);
    printf("%s{\"what\": ", first ? "" : ", ");
    print_json(s->what);
    printf(", \"printed\": ");
    print_json(s->printed);
    printf(", \"right\": ");
    print_json(right);
    printf(", \"equal\": %s, \"why\": ", !s->printed ? "null" : strcmp(s->printed, right) == 0 ? "true" : "false");
    print_json(s->why);
    printf(", \"command\": ");
    print_json(s->command);
    printf("}");
}

/* Print words as they are, and rows of numbers aligned. */
static void print_rows(const char *title, const char *text)
{
    if (strpbrk(text, "abcdefghijklmnopqrstuvwxyz")) {
        printf("  %-12s %s\n", title, text);
        return;
    }
    printf("  %s\n    ", title);
    for (size_t word = 0; *text; text += word) {
        word = strcspn(text, " \n");
        printf("%*.*s", (int)(word < 7 ? 7 : word), (int)word, text);
        if (text[word]) {
            printf("%s", text[word] == '\n' ? "\n    " : " ");
            word++;
        }
    }
    puts("");
}

static void print_step(const tutorial_step *s, int number)
{
    char right[TEXT];
    s->compute(right, sizeof right);
    const bool equal = s->printed && strcmp(s->printed, right) == 0;
    printf("\n%d. %s\n", number, s->what);
    if (s->printed && !equal)
        print_rows("the text", s->printed);
    print_rows(equal ? "as printed" : "right", right);
    if (s->why)
        printf("  why          %s\n", s->why);
    if (s->command)
        printf("  again        %s\n", s->command);
}

static void list(bool json)
{
    if (json)
        printf("{\"tutorials\": [");
    for (int n = 0; n < N_TUTORIALS; n++) {
        const tutorial *t = tutorials[n];
        if (json) {
            printf("%s{\"name\": \"%s\", \"title\": ", n ? ", " : "", t->name);
            print_json(t->title);
            printf(", \"about\": ");
            print_json(t->about);
            printf("}");
        } else {
            printf("%s  %s\n    %s\n", t->name, t->title, t->about);
        }
    }
    puts(json ? "]}" : "\nrelpos tutorial s0 replays the first.");
}

static int replay(const tutorial *t, bool json)
{
    int wrong = 0, n = 0;
    if (json) {
        printf("{\"name\": \"%s\", \"title\": ", t->name);
        print_json(t->title);
        printf(", \"steps\": [");
    } else {
        printf("%s\n%s\n", t->title, t->about);
    }
    for (; t->steps[n].what; n++) {
        wrong += t->steps[n].why != NULL;
        if (json)
            print_step_json(&t->steps[n], n == 0);
        else
            print_step(&t->steps[n], n + 1);
    }
    if (json)
        puts("]}");
    else
        printf("\n%d steps; %d %s in the text.\n", n, wrong, wrong == 1 ? "is wrong" : "are wrong");
    return CLI_OK;
}

static int run(const cli_command *self, int argc, char **argv)
{
    const char *args[1];
    char safe[64];
    bool json = false;
    int n_args = 0;
    const int code = cli_options(self, argc, argv, on_option, &json, args, 1, &n_args);
    if (code >= 0)
        return code;
    if (n_args == 0) {
        list(json);
        return CLI_OK;
    }
    for (int n = 0; n < N_TUTORIALS; n++)
        if (strcmp(args[0], tutorials[n]->name) == 0)
            return replay(tutorials[n], json);
    return cli_error(CLI_USAGE, "tutorial: no text is called \"%s\" (choose s0, s1, s2, s3 or s4)",
                     io_safe(safe, sizeof safe, args[0]));
}

const cli_command cmd_tutorial = {
    .name = "tutorial",
    .summary = "replay a text on relative positions: what it prints, and the right numbers",
    .usage = "[s0|s1|s2|s3|s4] [--json]      without a name: list the texts",
    .example = "  relpos tutorial\n  relpos tutorial s0\n",
    .options = options,
    .run = run,
};
