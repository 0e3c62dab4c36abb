/* vote: decides by the answers of several servers, as they arrive.
 *
 * An answer is a vote for a word; no answer, or one that does not count, is an absence.  A word wins with the votes of
 * more than half of all servers, absent ones included: so two polls that are both won have a server in common.
 */
#ifndef BACKEND_REDLOCK_VOTE_H
#define BACKEND_REDLOCK_VOTE_H

#include <stdbool.h>

#define VOTE_SERVERS 15 /* at most */
#define VOTE_WORD 48    /* bytes of a word, with NUL */
#define VOTE_NOTHING "" /* the weakest word: any other that may have a majority is preferred */

enum vote_verdict {
    VOTE_OPEN,  /* more answers are needed */
    VOTE_WON,   /* a majority voted for the word */
    VOTE_LOST,  /* the word cannot win any more; another has won, or may have won */
    VOTE_SPLIT, /* no word can win */
    VOTE_AWAY   /* too few answers for a verdict */
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
/* NULL: absent.  Only the first vote of a server counts. */
void vote_cast(struct vote *vote, unsigned server, const char *word);
unsigned vote_count(const struct vote *vote, const char *word);
/* The verdict on `word`; NULL: on the word that has a majority or, when all votes are cast, may have one.  *ret_word
 * (may be NULL) is the word that won; borrowed from `vote`. */
enum vote_verdict vote_verdict(const struct vote *vote, const char *word, const char **ret_word);

#endif
