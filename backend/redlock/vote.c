/* vote: see vote.h. */
#include "backend/redlock/vote.h"

#include <glib.h>
#include <string.h>

unsigned vote_majority(unsigned servers)
{
    return servers / 2 + 1;
}

void vote_init(struct vote *vote, unsigned servers)
{
    *vote = (struct vote){.servers = servers};
}

void vote_cast(struct vote *vote, unsigned server, const char *word)
{
    if (vote->votes[server].cast) {
        return;
    }
    vote->votes[server].cast = true;
    vote->votes[server].absent = !word;
    g_strlcpy(vote->votes[server].word, word ? word : "", VOTE_WORD);
}

unsigned vote_count(const struct vote *vote, const char *word)
{
    unsigned count = 0;
    for (unsigned i = 0; i < vote->servers; i++) {
        count += vote->votes[i].cast && !vote->votes[i].absent && strcmp(vote->votes[i].word, word) == 0;
    }
    return count;
}

/* The word other than `but` with the most votes; NULL: none. */
static const char *vote_most(const struct vote *vote, const char *but, unsigned *ret_count)
{
    const char *most = NULL;
    *ret_count = 0;
    for (unsigned i = 0; i < vote->servers; i++) {
        const char *word = vote->votes[i].word;
        if (!vote->votes[i].cast || vote->votes[i].absent || (but && strcmp(word, but) == 0)) {
            continue;
        }
        unsigned count = vote_count(vote, word);
        if (count > *ret_count) {
            *ret_count = count;
            most = word;
        }
    }
    return most;
}

enum vote_verdict vote_verdict(const struct vote *vote, const char *word, const char **ret_word)
{
    unsigned majority = vote_majority(vote->servers), open = 0, absent = 0, most_count, some_count;
    for (unsigned i = 0; i < vote->servers; i++) {
        open += !vote->votes[i].cast;
        absent += vote->votes[i].absent;
    }
    const char *most = vote_most(vote, word, &most_count), *some = vote_most(vote, VOTE_NOTHING, &some_count);
    if (ret_word) {
        *ret_word = word ? word : most;
    }
    if (word && vote_count(vote, word) >= majority) {
        return VOTE_WON;
    }
    if (word ? vote_count(vote, word) + open >= majority : most_count < majority && open > 0) {
        return VOTE_OPEN;
    }
    if (absent > vote->servers - majority) {
        return VOTE_AWAY;
    }
    if (!word && some_count + absent >= majority && most_count < majority) {
        most = some;
    }
    if (ret_word) {
        *ret_word = most;
    }
    if (most_count < majority && most_count + absent + open < majority) {
        return VOTE_SPLIT;
    }
    return word ? VOTE_LOST : VOTE_WON;
}
