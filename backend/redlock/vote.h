/* vote: what becomes of a question that was put to several servers, from their answers as they come.
 *
 * An answer is a word, and counts for that word; no answer, or one that may not count, is an absence.  More than half
 * of all servers decide, whether they answer or not: two votes that are both won have a server in common.
 */
#ifndef BACKEND_REDLOCK_VOTE_H
#define BACKEND_REDLOCK_VOTE_H

#include <stdbool.h>

#define VOTE_SERVERS 15 /* at most */
#define VOTE_WORD 48    /* bytes of a word, with NUL */
#define VOTE_NOTHING "" /* the weakest word: whatever else may have a majority counts more */

enum vote_verdict {
    VOTE_OPEN,  /* more answers are needed */
    VOTE_WON,   /* a majority says the word */
    VOTE_LOST,  /* it cannot have a majority any more; another has, or may have for all that is known */
    VOTE_SPLIT, /* no word can have one */
    VOTE_AWAY   /* too few answers to tell anything */
};

struct vote {
    unsigned servers;
    struct {
        bool cast, absent;
        char word[VOTE_WORD];
    } votes[VOTE_SERVERS];
};

unsigned vote_majority(unsigned servers);
void vote_init(struct vote *vote, unsigned servers);
/* NULL: absent.  The first that a server casts counts. */
void vote_cast(struct vote *vote, unsigned server, const char *word);
unsigned vote_count(const struct vote *vote, const char *word);
/* Of that word; NULL: of whichever has a majority, or when all are in may have one.  *ret_word (may be NULL): who won,
 * or to whom it was lost; borrowed of `vote`. */
enum vote_verdict vote_verdict(const struct vote *vote, const char *word, const char **ret_word);

#endif
