/* kin: whose tickets do not exclude each other; see backend.h.
 *
 * What a lock owner holds is one, by however many files it was asked for, and goes with any of them; so it is of all of
 * them, also where some of its bytes are given back.
 */
#include "backend/backend.h"

static bool kin_in(const GArray *handles, uint64_t handle)
{
    for (guint i = 0; handles && i < handles->len; i++) {
        if (g_array_index(handles, uint64_t, i) == handle) {
            return true;
        }
    }
    return false;
}

static bool kin_has(struct backend_kin kin, uint64_t handle)
{
    return handle && (kin.handle == handle || kin_in(kin.handles, handle));
}

bool backend_are_kin(struct backend_kin a, struct backend_kin b)
{
    if (a.lock_owner && b.lock_owner) {
        return a.lock_owner == b.lock_owner;
    }
    return kin_has(a, b.handle) || kin_has(b, a.handle);
}

static void kin_add(GArray **handles, uint64_t first, uint64_t handle)
{
    if (!handle || handle == first || kin_in(*handles, handle)) {
        return;
    }
    *handles = *handles ? *handles : g_array_new(FALSE, FALSE, sizeof handle);
    if ((*handles)->len < BACKEND_HANDLES_MAX) {
        g_array_append_val(*handles, handle);
    }
}

void backend_handles_add(GArray **handles, uint64_t first, struct backend_kin more)
{
    kin_add(handles, first, more.handle);
    for (guint i = 0; more.handles && i < more.handles->len; i++) {
        kin_add(handles, first, g_array_index(more.handles, uint64_t, i));
    }
}
