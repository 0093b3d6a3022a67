/* SPDX-License-Identifier: MIT
 *
 * completion_specs.h: what shells complete inside a KV spec: names, the keys of each, and keys' words.
 *
 *     leankv:ah=3,st<TAB>      leankv:ah=3,step=          h2o:budget=512+<TAB>      h2o:budget=512+kvcrush
 *
 * The words stand in one table here, since no public header of the library has them; tests/cli/help.sh holds it against
 * what the library answers.
 */
#ifndef PLEAT_CLI_COMPLETION_SPECS_H
#define PLEAT_CLI_COMPLETION_SPECS_H

#include <stdio.h>

/* Functions of the shell that complete a spec: _pleat_spec in bash and zsh, __pleat_spec in fish. */
void completion_specs_bash(FILE *f);
void completion_specs_zsh(FILE *f);
void completion_specs_fish(FILE *f);

#endif
