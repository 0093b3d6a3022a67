/* SPDX-License-Identifier: MIT
 *
 * params.c: see params.h.
 */
#include "params.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/lib/common.h"

int params_refuse(refusal *why, int status, const char *field, const char *fmt, ...) {
    va_list args;
    why->status = status;
    snprintf(why->field, sizeof why->field, "%s", field);
    va_start(args, fmt);
    vsnprintf(why->text, sizeof why->text, fmt, args);
    va_end(args);
    return -1;
}

int params_have_many_lists(const char *json, size_t n) {
    size_t n_lists = 0;
    for (size_t i = 0; i < n; i++) n_lists += json[i] == '{' || json[i] == '[';
    return n_lists > PARAMS_LISTS_MAX;
}

/* ---- values of fields: *out stays as it is where the field is left out or null ------------------------------------------ */

static json_t *given(json_t *body, const char *field) {
    json_t *value = json_object_get(body, field);
    return json_is_null(value) ? NULL : value;
}

static int read_flag(json_t *body, const char *field, int *out, refusal *why) {
    json_t *value = given(body, field);
    if (!value) return 0;
    if (!json_is_boolean(value)) return params_refuse(why, 400, field, "%s is true or false", field);
    *out = json_is_true(value);
    return 0;
}

static int read_integer(json_t *body, const char *field, int64_t low, int64_t high, int64_t *out, refusal *why) {
    json_t *value = given(body, field);
    if (!value) return 0;
    if (!json_is_integer(value) || json_integer_value(value) < low || json_integer_value(value) > high)
        return params_refuse(why, 400, field, "%s is a whole number in %lld..%lld", field, (long long)low,
                             (long long)high);
    *out = json_integer_value(value);
    return 0;
}

static int read_u32(json_t *body, const char *field, uint32_t low, uint32_t high, uint32_t *out, refusal *why) {
    int64_t value = *out;
    if (read_integer(body, field, low, high, &value, why) != 0) return -1;
    *out = (uint32_t)value;
    return 0;
}

static int read_number(json_t *body, const char *field, double low, double high, float *out, refusal *why) {
    json_t *value = given(body, field);
    if (!value) return 0;
    if (!json_is_number(value) || !(json_number_value(value) >= low && json_number_value(value) <= high))
        return params_refuse(why, 400, field, "%s is a number in %g..%g", field, low, high);
    *out = (float)json_number_value(value);
    return 0;
}

static int read_string(json_t *body, const char *field, const char **out, refusal *why) {
    json_t *value = given(body, field);
    if (!value) return 0;
    if (!json_is_string(value)) return params_refuse(why, 400, field, "%s is a string", field);
    *out = json_string_value(value);
    return 0;
}

/* ---- groups of fields ------------------------------------------------------------------------------------------------- */

/* The defaults are those of OpenAI's API: a draw from the whole distribution. */
static int read_sampling(json_t *body, params *p, refusal *why) {
    int64_t seed = -1, top_k = 0;
    pleat_sampler_options *s = &p->sampling;
    pleat_sampler_options_default(s);
    s->temperature = 1;
    s->top_k = 0;
    s->top_p = 1;
    s->min_p = 0;
    if (read_number(body, "temperature", 0, 1000, &s->temperature, why) != 0 ||
        read_number(body, "top_p", 0, 1, &s->top_p, why) != 0 ||
        read_number(body, "min_p", 0, 1, &s->min_p, why) != 0 ||
        read_integer(body, "top_k", -1, UINT32_MAX, &top_k, why) != 0 ||
        read_integer(body, "seed", INT64_MIN, INT64_MAX, &seed, why) != 0)
        return -1;
    if (!(s->top_p > 0)) return params_refuse(why, 400, "top_p", "top_p is above 0, and at most 1");
    s->top_k = top_k > 0 ? (uint32_t)top_k : 0;
    s->seed = (uint64_t)seed;
    p->has_seed = given(body, "seed") != NULL;
    p->repetition_penalty = 1;
    if (read_number(body, "frequency_penalty", -2, 2, &p->frequency_penalty, why) != 0 ||
        read_number(body, "presence_penalty", -2, 2, &p->presence_penalty, why) != 0 ||
        read_number(body, "repetition_penalty", 0.01, 100, &p->repetition_penalty, why) != 0)
        return -1;
    return 0;
}

static int add_stop(json_t *value, params *p, refusal *why) {
    const size_t n = json_string_length(value);
    if (!json_is_string(value) || n < 1 || n > PLEAT_STOP_BYTES_MAX || p->n_stops == PLEAT_STOPS_MAX)
        return params_refuse(why, 400, "stop", "stop is a string of 1 to %d bytes, or a list of at most %d",
                             PLEAT_STOP_BYTES_MAX, PLEAT_STOPS_MAX);
    p->stops[p->n_stops++] = json_string_value(value);
    return 0;
}

static int read_stops(json_t *body, params *p, refusal *why) {
    json_t *stop = given(body, "stop"), *ids = given(body, "stop_token_ids"), *value;
    size_t i;
    if (stop && !json_is_array(stop) && add_stop(stop, p, why) != 0) return -1;
    json_array_foreach(stop, i, value) {
        if (add_stop(value, p, why) != 0) return -1;
    }
    if (ids && (!json_is_array(ids) || json_array_size(ids) > PARAMS_STOP_IDS_MAX))
        return params_refuse(why, 400, "stop_token_ids", "stop_token_ids is a list of at most %d token ids",
                             PARAMS_STOP_IDS_MAX);
    json_array_foreach(ids, i, value) {
        const json_int_t id = json_integer_value(value);
        if (!json_is_integer(value) || id < 0 || id > INT32_MAX)
            return params_refuse(why, 400, "stop_token_ids", "stop_token_ids[%zu] is no token id", i);
        p->stop_ids[p->n_stop_ids++] = (pleat_token)id;
    }
    return 0;
}

static int read_biases(json_t *body, params *p, refusal *why) {
    json_t *biases = given(body, "logit_bias"), *value;
    const char *key;
    if (!biases) return 0;
    if (!json_is_object(biases) || json_object_size(biases) > PARAMS_BIASES_MAX)
        return params_refuse(why, 400, "logit_bias", "logit_bias is an object of at most %d token ids and numbers",
                             PARAMS_BIASES_MAX);
    json_object_foreach(biases, key, value) {
        char *end;
        const unsigned long id = strtoul(key, &end, 10);
        const double bias = json_number_value(value);
        if (key[0] < '0' || key[0] > '9' || *end || id > INT32_MAX || !json_is_number(value) || !(fabs(bias) <= 100))
            return params_refuse(why, 400, "logit_bias", "logit_bias has token ids as names, and numbers in -100..100");
        p->biases[p->n_biases++] = (pleat_logit_bias){.token = (pleat_token)id, .bias = (float)bias};
    }
    return 0;
}

static int read_stream(json_t *body, params *p, refusal *why) {
    json_t *options = given(body, "stream_options");
    if (read_flag(body, "stream", &p->streams, why) != 0) return -1;
    if (read_flag(body, "return_progress", &p->wants_progress, why) != 0) return -1;
    if (p->wants_progress && !p->streams)
        return params_refuse(why, 400, "return_progress", "return_progress stands beside \"stream\": true");
    if (!options) return 0;
    if (!json_is_object(options) || !p->streams)
        return params_refuse(why, 400, "stream_options", "stream_options is an object beside \"stream\": true");
    return read_flag(options, "include_usage", &p->wants_usage, why);
}

/* What a schema says word by word may yet be no object, or more than can be followed. */
static int check_shape(const params *p, const char *field, refusal *why) {
    pleat_error err = {0, PLEAT_NOWHERE, ""};
    if (pleat_json_shape_check(schema_shape(p->schema), &err) == PLEAT_OK) return 0;
    return params_refuse(why, 400, field, "the schema: %s", err.text);
}

static int read_schema(json_t *root, params *p, const char *field, refusal *why) {
    char text[200];
    if (!root) return params_refuse(why, 400, field, "there is no \"json_schema\": {\"schema\": {}}");
    p->schema = schema_read(root, text, sizeof text);
    if (!p->schema) return params_refuse(why, 400, field, "the schema: %s", text);
    return check_shape(p, field, why);
}

static int read_format(json_t *body, params *p, refusal *why) {
    json_t *format = given(body, "response_format");
    const char *type = json_string_value(json_object_get(format, "type"));
    if (!format) return 0;
    const int has_schema = type && strcmp(type, "json_schema") == 0;
    p->wants_json = has_schema || (type && strcmp(type, "json_object") == 0);
    if (has_schema)
        return read_schema(json_object_get(json_object_get(format, "json_schema"), "schema"), p, "response_format",
                           why);
    if (p->wants_json || (type && strcmp(type, "text") == 0)) return 0;
    return params_refuse(
        why, 400, "response_format",
        "response_format has \"type\" \"text\", \"json_object\" or \"json_schema\"; %.40s is not supported",
        type ? type : "anything else");
}

/* Both API's: what is common. */
static int read_common(json_t *body, params *p, refusal *why) {
    uint32_t n = 1;
    int64_t priority = 0, limit = 0;
    const char *cache_key = NULL;
    if (read_string(body, "model", &p->model, why) != 0 || read_u32(body, "n", 1, PARAMS_CHOICES_MAX, &n, why) != 0 ||
        read_sampling(body, p, why) != 0 || read_stops(body, p, why) != 0 || read_biases(body, p, why) != 0 ||
        read_stream(body, p, why) != 0 || read_format(body, p, why) != 0 ||
        read_flag(body, "ignore_eos", &p->ignores_end, why) != 0 ||
        read_string(body, "cache_salt", &p->salt, why) != 0 ||
        read_string(body, "prompt_cache_key", &cache_key, why) != 0 || read_string(body, "kv", &p->kv, why) != 0 ||
        read_integer(body, "priority", INT32_MIN, INT32_MAX, &priority, why) != 0 ||
        read_integer(body, "time_limit_ms", 1, PARAMS_TIME_LIMIT_MAX_MS, &limit, why) != 0)
        return -1;
    if (p->salt && strlen(p->salt) > PARAMS_SALT_MAX)
        return params_refuse(why, 400, "cache_salt", "cache_salt has at most 256 bytes");
    p->n = n;
    p->parks = cache_key != NULL;
    p->priority = (int32_t)priority;
    p->has_priority = given(body, "priority") != NULL;
    p->time_limit_ms = (uint64_t)limit;
    return 0;
}

/* ---- chat ------------------------------------------------------------------------------------------------------------- */

int params_check_messages(json_t *messages, refusal *why) {
    size_t i;
    json_t *message;
    if (!json_is_array(messages) || json_array_size(messages) == 0)
        return params_refuse(why, 400, "messages", "messages is a list of at least one message");
    json_array_foreach(messages, i, message) {
        if (!json_is_object(message) || !json_is_string(json_object_get(message, "role")))
            return params_refuse(why, 400, "messages", "messages[%zu] is no object with a role", i);
    }
    return 0;
}

/* Does the value of such a field ask for anything?  Clients send defaults along. */
static int asks(const char *field, const json_t *value) {
    if (!value || json_is_false(value) || (json_is_array(value) && json_array_size(value) == 0)) return 0;
    return strcmp(field, "min_tokens") != 0 || !json_is_integer(value) || json_integer_value(value) != 0;
}

/* What would change the answer and is not done. */
static int check_undone(json_t *body, refusal *why) {
    static const char *const undone[] = {"suffix",
                                         "audio",
                                         "functions",
                                         "function_call",
                                         "guided_json",
                                         "guided_regex",
                                         "guided_grammar",
                                         "grammar",
                                         "use_beam_search",
                                         "guided_choice",
                                         "structured_outputs",
                                         "min_tokens",
                                         "bad_words",
                                         "allowed_token_ids",
                                         "prompt_logprobs"};
    for (size_t i = 0; i < sizeof undone / sizeof undone[0]; i++)
        if (asks(undone[i], given(body, undone[i])))
            return params_refuse(why, 400, undone[i], "%s is not supported", undone[i]);
    return 0;
}

static const char *name_of(const json_t *tool) {
    return json_string_value(json_object_get(json_object_get(tool, "function"), "name"));
}

/* The schema of a strict tool's arguments; NULL: any object. */
static json_t *strict_of(const json_t *tool) {
    json_t *function = json_object_get(tool, "function");
    return json_is_true(json_object_get(function, "strict")) ? json_object_get(function, "parameters") : NULL;
}

int params_read_call(params *p, const char *arguments, refusal *why) {
    const char *names[PARAMS_TOOLS_MAX];
    json_t *schemas[PARAMS_TOOLS_MAX], *tool;
    uint32_t n = 0;
    size_t i;
    char text[200];
    if (!p->forced && json_array_size(p->tools) > PARAMS_TOOLS_MAX)
        return params_refuse(why, 400, "tools", "of more than %d tools none can be asked for, or be strict",
                             PARAMS_TOOLS_MAX);
    json_array_foreach(p->tools, i, tool) {
        if (!name_of(tool) || (p->forced && strcmp(name_of(tool), p->forced) != 0)) continue;
        names[n] = name_of(tool);
        schemas[n++] = strict_of(tool);
        if (p->forced) break;
    }
    if (p->forced) return schemas[0] ? read_schema(schemas[0], p, "tools", why) : 0;
    if (n == 0) return params_refuse(why, 400, "tool_choice", "tool_choice \"required\" stands beside tools");
    p->schema = schema_of_calls(names, schemas, n, arguments, text, sizeof text);
    if (!p->schema) return params_refuse(why, 400, "tools", "a tool's schema: %s", text);
    return check_shape(p, "tools", why);
}

void params_release(params *p) { schema_destroy(&p->schema); }

static int has_tool(const json_t *tools, const char *name) {
    size_t i;
    json_t *tool;
    json_array_foreach(tools, i, tool) {
        if (name_of(tool) && strcmp(name_of(tool), name) == 0) return 1;
    }
    return 0;
}

static int has_strict(const json_t *tools) {
    size_t i;
    json_t *tool;
    json_array_foreach(tools, i, tool) {
        if (strict_of(tool)) return 1;
    }
    return 0;
}

/* The tool that tool_choice forces, if it does. */
static int read_choice(json_t *choice, params *p, refusal *why) {
    const char *word = json_string_value(choice);
    if (!choice || (word && (strcmp(word, "none") == 0 || strcmp(word, "auto") == 0))) {
        p->has_strict = has_strict(p->tools);
        return 0;
    }
    const json_t *only = json_array_size(p->tools) == 1 ? json_array_get(p->tools, 0) : NULL;
    if (word && strcmp(word, "required") == 0) {
        p->forced = name_of(only);
        p->requires_call = !p->forced;
        return 0;
    }
    p->forced = name_of(choice);
    if (word || !p->forced)
        return params_refuse(
            why, 400, "tool_choice",
            "tool_choice is \"auto\", \"none\", \"required\" or {\"type\": \"function\", \"function\": "
            "{\"name\"}}");
    if (!has_tool(p->tools, p->forced))
        return params_refuse(why, 400, "tool_choice", "tool_choice names '%.64s', which is none of the tools",
                             p->forced);
    return 0;
}

static int read_tools(json_t *body, params *p, refusal *why) {
    json_t *tools = given(body, "tools"), *choice = given(body, "tool_choice");
    const char *word = json_string_value(choice);
    int parallel = 1;
    if (read_flag(body, "parallel_tool_calls", &parallel, why) != 0) return -1;
    p->one_call = !parallel;
    if (tools && !json_is_array(tools)) return params_refuse(why, 400, "tools", "tools is a list");
    if (tools && json_array_size(tools) > 0 && !(word && strcmp(word, "none") == 0)) p->tools = tools;
    if (read_choice(choice, p, why) != 0) return -1;
    if (p->tools && p->wants_json)
        return params_refuse(why, 400, "response_format", "response_format is not supported beside tools");
    p->template_args = given(body, "chat_template_kwargs");
    if (p->template_args && !json_is_object(p->template_args))
        return params_refuse(why, 400, "chat_template_kwargs", "chat_template_kwargs is an object");
    int is_prompted = 1;
    if (read_flag(body, "add_generation_prompt", &is_prompted, why) != 0 ||
        read_flag(body, "continue_final_message", &p->goes_on, why) != 0)
        return -1;
    p->is_unprompted = !is_prompted;
    if (p->goes_on && given(body, "add_generation_prompt") && is_prompted)
        return params_refuse(why, 400, "continue_final_message",
                             "continue_final_message stands beside add_generation_prompt false, or none");
    return 0;
}

/* A conversation that goes on, or is to. */
static int read_conversation(json_t *body, params *p, refusal *why) {
    const char *previous = NULL;
    if (read_flag(body, "store", &p->stores, why) != 0 ||
        read_string(body, "previous_response_id", &previous, why) != 0)
        return -1;
    p->parks |= p->stores || previous;
    if (!p->stores) return 0;
    if (p->n > 1) return params_refuse(why, 400, "n", "store keeps a conversation with one answer: n is 1");
    if (p->goes_on || p->is_unprompted)
        return params_refuse(why, 400, "store", "store keeps answers that are messages of their own");
    return 0;
}

static int read_chat(json_t *body, params *p, refusal *why) {
    p->messages = json_object_get(body, "messages");
    if (params_check_messages(p->messages, why) != 0 || read_tools(body, p, why) != 0 ||
        read_conversation(body, p, why) != 0 ||
        read_integer(body, "max_tokens", 1, INT32_MAX, &p->max_tokens, why) != 0 ||
        read_integer(body, "max_completion_tokens", 1, INT32_MAX, &p->max_tokens, why) != 0 ||
        read_flag(body, "logprobs", &p->wants_logprobs, why) != 0 ||
        read_u32(body, "top_logprobs", 0, PLEAT_LOGPROBS_MAX, &p->n_top, why) != 0)
        return -1;
    if (p->n_top > 0 && !p->wants_logprobs)
        return params_refuse(why, 400, "top_logprobs", "top_logprobs needs \"logprobs\": true");
    return 0;
}

/* ---- completions ------------------------------------------------------------------------------------------------------ */

uint32_t params_count_prompts(json_t *prompt, refusal *why) {
    if (json_is_string(prompt)) return 1;
    const size_t n = json_array_size(prompt);
    json_t *first = json_array_get(prompt, 0);
    if (json_is_integer(first)) return 1;
    if (n >= 1 && n <= PARAMS_PROMPTS_MAX && (json_is_string(first) || json_is_array(first))) return (uint32_t)n;
    params_refuse(why, 400, "prompt", "prompt is a string, a list of token ids, or a list of at most %d of either",
                  PARAMS_PROMPTS_MAX);
    return 0;
}

json_t *params_prompt(json_t *prompt, uint32_t i) {
    return json_is_string(prompt) || json_is_integer(json_array_get(prompt, 0)) ? prompt : json_array_get(prompt, i);
}

int params_ids(json_t *array, pleat_token **ids, uint32_t *n, refusal *why) {
    const size_t size = json_array_size(array);
    size_t i;
    json_t *value;
    *ids = NULL;
    *n = 0;
    if (!json_is_array(array) || size == 0 || size > INT32_MAX)
        return params_refuse(why, 400, "prompt", "a prompt is a string, or a list of at least one token id");
    pleat_token *to = cli_alloc(size, sizeof *to);
    json_array_foreach(array, i, value) {
        const json_int_t id = json_integer_value(value);
        if (!json_is_integer(value) || id < 0 || id > INT32_MAX) {
            free(to);
            return params_refuse(why, 400, "prompt", "element %zu of a prompt is no token id", i);
        }
        to[i] = (pleat_token)id;
    }
    *ids = to;
    *n = (uint32_t)size;
    return 0;
}

static int read_completion(json_t *body, params *p, refusal *why) {
    json_t *logprobs = given(body, "logprobs");
    int64_t best_of = p->n;
    p->prompt = json_object_get(body, "prompt");
    p->max_tokens = 16;
    p->adds_special = 1;
    if (params_count_prompts(p->prompt, why) == 0) return -1;
    if (given(body, "previous_response_id"))
        return params_refuse(why, 400, "previous_response_id", "previous_response_id is for /v1/chat/completions");
    if (read_integer(body, "max_tokens", 0, INT32_MAX, &p->max_tokens, why) != 0 ||
        read_flag(body, "echo", &p->echoes, why) != 0 ||
        read_flag(body, "add_special_tokens", &p->adds_special, why) != 0 ||
        read_u32(body, "logprobs", 0, PLEAT_LOGPROBS_MAX, &p->n_top, why) != 0 ||
        read_integer(body, "best_of", 1, INT32_MAX, &best_of, why) != 0)
        return -1;
    if (best_of != p->n) return params_refuse(why, 400, "best_of", "best_of other than n is not supported");
    if (p->max_tokens == 0 && !p->echoes)
        return params_refuse(why, 400, "max_tokens", "max_tokens is 0 only where \"echo\" is true");
    p->wants_logprobs = logprobs != NULL;
    if (p->wants_logprobs && p->echoes && p->n > 1)
        return params_refuse(why, 400, "n", "echo with logprobs is for n 1: they are the same for each");
    return 0;
}

int params_read(json_t *body, int is_chat, params *out, refusal *why) {
    *out = (params){.is_chat = is_chat, .max_tokens = -1};
    if (!json_is_object(body)) return params_refuse(why, 400, "", "the body is no JSON object");
    if (check_undone(body, why) != 0 || read_common(body, out, why) != 0) return -1;
    return is_chat ? read_chat(body, out, why) : read_completion(body, out, why);
}
