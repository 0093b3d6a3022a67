# SPDX-License-Identifier: MIT
#
# company.sh: tests/cli/serve_company.sh with every text told.
#
#     PLEAT=build/pleat ROOT=$PWD bash tests/long/company.sh
SERVE_TOLD=65 . "$ROOT/tests/cli/serve_company.sh"
