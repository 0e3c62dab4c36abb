/* full_script: what every full script begins with.  No include guard: script.c includes this once a script. */
/* clang-format off */
#include "backend/redis/script/first.inc"
#include "backend/redis/script/head.inc"
#include "backend/redis/script/epoch.inc"
#include "backend/redis/script/claim.inc"
#include "backend/redis/script/look.inc"
#include "backend/redis/script/common.inc"
/* clang-format on */
