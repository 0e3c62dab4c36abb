/* charge: charges the content of a hold to its user; see hold.h. */
#include "fs/hold/hold.h"
#include "fs/hold/quota.h"

static void hold_charge_bytes(struct fs *fs, struct hold *hold, size_t content)
{
    if (hold->charged && content != hold->bytes) {
        quota_charge(fs->quota, hold->account, 0, (int64_t)content - hold->bytes);
        hold->bytes = (uint32_t)content;
    }
}

bool hold_charge(struct fs *fs, struct hold *hold, size_t content)
{
    uint32_t before = hold->bytes;
    if (hold->ticket && content <= before) {
        return true; /* a user above its share of the total keeps what it has */
    }
    if (content > before) {
        hold_charge_bytes(fs, hold, content);
    }
    if (quota_exceeded(fs->quota, hold->account)) {
        hold_charge_bytes(fs, hold, before);
        return false;
    }
    return true;
}

void hold_set_size(struct fs *fs, struct hold *hold, size_t size)
{
    hold->size = (uint32_t)size;
    hold_charge_bytes(fs, hold, size);
}
