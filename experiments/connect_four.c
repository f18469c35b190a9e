/* Exact results of connect four on 6 rows and 7 columns: win, draw or loss of the player to move, by alpha-beta search
   with a table of positions.

   A board is a number: column c has bits 7c (lowest) to 7c + 5, and bit 7c + 6 is always 0. `own` has the stones of the
   player to move, `all` those of both. */

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define COLUMNS 7
#define ROWS 6
#define CELLS (COLUMNS * ROWS)

typedef uint64_t board;

static const board BOTTOM = 0x0040810204081ULL;      /* the lowest cell of each column */
static const board CELLS_OF_ALL = 0x0FDFBF7EFDFBFULL; /* BOTTOM times the 6 bits of a column */
static const int ORDER[COLUMNS] = {3, 2, 4, 1, 5, 0, 6};

static board *table; /* entries: key << 4 | most + 1 << 2 | least + 1, of the newest position */
static board num_slots;
static uint64_t num_left; /* positions that the search may still visit */

static board column(int c) { return ((1ULL << ROWS) - 1) << (7 * c); }

/* Returns the free cells that would complete four stones of a player. */
static board wins(board stones, board all) {
    board found = (stones << 1) & (stones << 2) & (stones << 3); /* upright */
    for (int step = 6; step <= 8; step++) {                      /* falling, level and rising lines */
        board pair = (stones << step) & (stones << 2 * step);
        found |= pair & (stones << 3 * step);
        found |= pair & (stones >> step);
        pair = (stones >> step) & (stones >> 2 * step);
        found |= pair & (stones << step);
        found |= pair & (stones >> 3 * step);
    }
    return found & CELLS_OF_ALL & ~all;
}

static board landing(board all) { return (all + BOTTOM) & CELLS_OF_ALL; }

/* Returns the result for the player to move, who cannot win at once: exact between two bounds, else beyond one. */
static int result(board own, board all, int least, int most) {
    if (num_left == 0) return 0;
    num_left--;
    board moves = landing(all), threats = wins(own ^ all, all), forced = moves & threats;
    if (forced) {
        if (forced & (forced - 1)) return -1; /* two threats, and one move */
        moves = forced;
    }
    moves &= ~(threats >> 1); /* a stone below a winning cell of the other one loses */
    if (!moves) return __builtin_popcountll(all) == CELLS ? 0 : -1;
    if (__builtin_popcountll(all) >= CELLS - 2) return 0;

    board key = own + all + BOTTOM, *slot = &table[(key * 0x9E3779B97F4A7C15ULL) >> 40 & (num_slots - 1)];
    if (*slot >> 4 == key) {
        int low = (int)(*slot & 3) - 1, high = (int)(*slot >> 2 & 3) - 1;
        if (low > least) least = low;
        if (high < most) most = high;
        if (least >= most) return low >= most ? low : high;
    }

    board order[COLUMNS];
    int scores[COLUMNS], number = 0;
    for (int i = 0; i < COLUMNS; i++) {
        board move = moves & column(ORDER[i]);
        if (!move) continue;
        int score = __builtin_popcountll(wins(own | move, all | move)), place = number++;
        for (; place > 0 && scores[place - 1] < score; place--) {
            order[place] = order[place - 1];
            scores[place] = scores[place - 1];
        }
        order[place] = move;
        scores[place] = score;
    }
    int best = -1, floor = least;
    for (int i = 0; i < number && best < most; i++) {
        int found = -result(own ^ all, all | order[i], -most, -floor);
        if (found > best) best = found;
        if (best > floor) floor = best;
    }
    if (num_left) { /* else the search was cut off, and nothing is known */
        int low = best > least ? best : -1, high = best < most ? best : 1;
        *slot = key << 4 | (board)(high + 1) << 2 | (board)(low + 1);
    }
    return best;
}

/* Makes a table of 2^bits positions; returns 0, or 1 without memory for it. */
int start(int bits) {
    free(table);
    num_slots = 1ULL << bits;
    table = calloc(num_slots, sizeof(board));
    return table == NULL;
}

/* Writes the result of each column for the player to move after some moves, 2 for a full column.

   Returns 0; 1: more than max_positions had to be visited; 2: the moves are impossible, or the game is over. */
int results(const int8_t *moves, int number, uint64_t max_positions, int8_t *found) {
    board own = 0, all = 0;
    for (int i = 0; i < number; i++) {
        if (moves[i] < 0 || moves[i] >= COLUMNS) return 2;
        board move = landing(all) & column(moves[i]);
        if (!move || (wins(own, all) & move)) return 2;
        own ^= all; /* the other player's stones */
        all |= move;
    }
    if (__builtin_popcountll(all) == CELLS) return 2;
    num_left = max_positions;
    board winning = wins(own, all);
    for (int c = 0; c < COLUMNS; c++) {
        board move = landing(all) & column(c), after = all | move;
        if (!move) found[c] = 2;
        else if (winning & move) found[c] = 1;
        else if (wins(own ^ all, after) & landing(after)) found[c] = -1;
        else found[c] = (int8_t)-result(own ^ all, after, -1, 1);
    }
    return num_left == 0;
}
