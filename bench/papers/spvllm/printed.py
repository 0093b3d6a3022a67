# SPDX-License-Identifier: MIT
"""What the paper prints: SpvLLM, sections and figures by name.  Its figures' bars have no numbers; what the text gives is
here."""

MEAN_INPUT, MEAN_OUTPUT = 224.7, 208.9
BUDGETS = (256, 512, 1024)

FRAGMENTATION_TO_BLOCK = 0.212  # p99 of reuse below that of free-block, budget 256
FRAGMENTATION_TO_NONE = 0.557   # and of no-op
THROUGHPUT = 2.21               # of reuse to no sparsification, budget 256
TPOT, ITL = 0.176, 0.489        # p99, lower by
PREEMPTED_COPY = 0.195          # of the requests

COPIES = {256: (2007, 179.14), 512: (2007, 155.03), 1024: (2004, 162.01)}  # how many, ms in all

SAYS = {
    "steps": "The original vLLM loses next to nothing (its last block), no-op ever more. Free-block loses less than "
             "no-op, since blocks are returned when all of their slots are dead. SpvLLM stays flat, and sparse-copy "
             "is as without sparsification.",
    "p99": "At budget 256 SpvLLM is 21.2 points below free-block and 55.7 below no-op. Sparse-copy is always as "
           "without sparsification, and all have less with larger budgets.",
    "copies": "2007 copies take 179 ms at budget 256, 155 at 512, 2004 take 162 at 1024: below a second of two to three "
              "minutes.",
    "throughput": "SpvLLM is first and free-block second. It has up to 2.21 times the requests per second of no "
                  "sparsification at budget 256, less for 512 and 1024. Divided by the share of blocks in use, "
                  "which was low for reasons that the paper does not know.",
    "latency": "Time to the first token hardly differs; SpvLLM has up to 17.6 % less time per output token and 48.9 % less "
               "between tokens. Normalised as the throughput.",
    "preemptions": "19.5 % of the requests with sparse-copy, none with the other strategies.",
}
