// SPDX-License-Identifier: MIT
//
// consumer.cpp: the public headers from C++, and a C++ program that links the library.
#include <pleat/pleat.h>

#include <cstdio>

int main() {
    pleat_spec spec;
    pleat_error err;
    if (pleat_spec_parse("k8v4", &spec, &err) != PLEAT_OK) return 1;
    char text[PLEAT_SPEC_TEXT_CAP];
    if (pleat_spec_print(&spec, text, sizeof text) != PLEAT_OK) return 1;
    std::printf("pleat %s: %s takes %llu bytes of %d\n", pleat_version(), text,
                static_cast<unsigned long long>(pleat_format_token_bytes(spec.high, 64)), 4 * 64);
    return 0;
}
