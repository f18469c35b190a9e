/* Who wins a position of hex on boards of at most 8x8 cells, by an exhaustive search with a table of positions.

A cell is x * size + y, as in Pgx. The first player connects x = 0 to x = size - 1, the second one y = 0 to
y = size - 1. One of them always wins, so a position has one bit. */
#include <stdint.h>
#include <stdlib.h>

typedef uint64_t cells;

static int size, num_cells, order[64];
static cells board, sides[2][2], not_first_y, not_last_y;
static struct entry {
  cells mine, others;
  int8_t result;
} *table;
static uint64_t table_mask;

/* Returns the cells next to some cells, and these themselves. */
static cells spread(cells at) {
  cells lower = at & not_first_y, upper = at & not_last_y; /* y - 1 and y + 1 exist */
  return (at | lower >> 1 | lower << (size - 1) | at >> size | at << size | upper >> (size - 1) | upper << 1) & board;
}

/* Returns whether stones connect the two sides of a player. */
static int connected(cells stones, int player) {
  cells reached = stones & sides[player][0], before = 0;
  while (reached != before) {
    if (reached & sides[player][1]) return 1;
    before = reached;
    reached = spread(reached) & stones;
  }
  return 0;
}

/* Returns the stones that touch some of them. */
static cells chain(cells some, cells stones) {
  cells reached = some, before = 0;
  while (reached != before) before = reached, reached = spread(reached) & stones;
  return reached;
}

/* Returns the two lowest of some cells. */
static cells two(cells some) {
  cells rest = some & (some - 1);
  return (some & -some) | (rest & -rest);
}

/* Returns whether a player's chains and sides hold together even if the other one moves: each link is a common stone,
or two empty cells that no other link needs. False says nothing. carrier: gets the cells of the links. */
static int linked(cells stones, cells empty, int player, cells *carrier) {
  cells reached = chain(sides[player][0] & stones, stones), near = (spread(reached) | sides[player][0]) & empty;
  cells given = empty;
  for (;;) {
    cells end = near & sides[player][1];
    int is_there = (reached & sides[player][1]) != 0;
    if (is_there || (end & (end - 1))) {
      *carrier = (given & ~empty) | (is_there ? 0 : two(end));
      return 1;
    }
    cells left = stones & ~reached, found = 0;
    while (left && !found) {
      cells other = chain(left & -left, stones), common = spread(other) & near;
      left &= ~other;
      if (common & (common - 1)) found = other, empty &= ~two(common);
    }
    if (!found) return 0;
    reached |= found;
    near = (near | spread(found)) & empty;
  }
}

/* Returns whether the player to move wins. */
static int wins(cells mine, cells others, int player) {
  cells empty = board & ~(mine | others), must = empty, carrier;
  if (linked(mine, empty, player, &carrier)) return 1;
  if (linked(others, empty, 1 - player, &carrier)) return 0;
  uint64_t key = (mine * 0x9E3779B97F4A7C15ull ^ others * 0xC2B2AE3D27D4EB4Full) + (uint64_t)player;
  struct entry *place = &table[(key ^ key >> 29) & table_mask];
  int8_t tag = (int8_t)(1 + player);
  if (place->mine == mine && place->others == others && (place->result >> 1) == tag) return place->result & 1;
  int result = 0;
  for (int i = 0; i < num_cells && !result; i++) {
    cells cell = (cells)1 << order[i];
    if (!(empty & cell)) continue;
    if (linked(mine | cell, empty & ~cell, player, &carrier)) result = 1;
    /* With this cell the other player would win, unless the move is there or breaks a link. */
    if (linked(others | cell, empty & ~cell, 1 - player, &carrier)) must &= carrier | cell;
  }
  for (int i = 0; i < num_cells && !result; i++) {
    cells cell = (cells)1 << order[i];
    if (must & cell) result = !wins(others, mine | cell, 1 - player);
  }
  *place = (struct entry){mine, others, (int8_t)(tag << 1 | result)};
  return result;
}

/* Prepares a board and a table of 2^bits positions; returns 1 if there is no memory. */
int start(int board_size, int bits) {
  size = board_size, num_cells = size * size;
  board = num_cells == 64 ? ~(cells)0 : ((cells)1 << num_cells) - 1;
  sides[0][0] = sides[0][1] = sides[1][0] = sides[1][1] = 0;
  for (int i = 0; i < size; i++) {
    sides[0][0] |= (cells)1 << i;
    sides[0][1] |= (cells)1 << ((size - 1) * size + i);
    sides[1][0] |= (cells)1 << i * size;
    sides[1][1] |= (cells)1 << (i * size + size - 1);
  }
  not_first_y = board & ~sides[1][0], not_last_y = board & ~sides[1][1];
  int number = 0;
  for (int far = 0; far <= 2 * size; far++) /* the middle first: it decides most games */
    for (int cell = 0; cell < num_cells; cell++)
      if (abs(2 * (cell / size) - size + 1) + abs(2 * (cell % size) - size + 1) == far) order[number++] = cell;
  free(table);
  table_mask = ((uint64_t)1 << bits) - 1;
  table = calloc(table_mask + 1, sizeof *table);
  return table == NULL;
}

/* Returns whether the player to move (0 or 1) wins. */
int mover_wins(cells mine, cells others, int player) {
  if (connected(others, 1 - player)) return 0;
  return wins(mine, others, player);
}
