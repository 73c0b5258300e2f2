/* The five published controllers over a probe matrix, one episode after another: the yardstick of plain_c.py.

   Straightforward scalar C, as one writes it without a thought of vector units. Every function plays one
   episode. Branch i of an episode is branch order[i] of its question; depth d of a branch is read when d
   answers of it were seen, and length + 1 is its end. */

#include <stdint.h>
#include <string.h>

enum { WIDTH = 64, ANSWERS = 1024, ROUNDS = 500 };
enum { SC, ASC, ESC, PARALLEL_PROBE, CMC };

typedef struct {
    int32_t branches, depths, vocabulary;
    const int16_t *answers, *gold;
    const int32_t *lengths, *tokens, *interval;
    const float *confidence; /* by votes of the leader and of the runner-up */
} Matrix;

typedef struct {
    int32_t n_init, max_use, warm_up, patience, ema_window, burst, widen, min_complete;
    float alpha, threshold, slack, trend;
} Settings;

typedef struct {
    int32_t tokens, correct;
} Result;

/* --- votes: the most frequent answer, of several the one voted for first ------------------------------- */

typedef struct {
    int winner, top1, top2, voters;
    uint8_t count[ANSWERS], first[ANSWERS];
} Votes;

static void clear(Votes *votes, int vocabulary) {
    votes->winner = -1;
    votes->top1 = votes->top2 = votes->voters = 0;
    memset(votes->count, 0, vocabulary);
}

static void add(Votes *votes, int answer) {
    if (answer < 0)
        return;
    int count = ++votes->count[answer];
    if (count == 1)
        votes->first[answer] = votes->voters;
    votes->voters++;
    if (answer == votes->winner) {
        votes->top1 = count;
    } else if (count > votes->top1) {
        votes->top2 = votes->top1;
        votes->top1 = count;
        votes->winner = answer;
    } else if (count == votes->top1) {
        votes->top2 = count;
        if (votes->first[answer] < votes->first[votes->winner])
            votes->winner = answer;
    } else if (count > votes->top2) {
        votes->top2 = count;
    }
}

static float confidence(const Matrix *matrix, const Votes *votes) {
    return matrix->confidence[votes->top1 * (WIDTH + 1) + votes->top2];
}

/* --- branches ------------------------------------------------------------------------------------------- */

typedef struct {
    const int16_t *answers[WIDTH];
    int length[WIDTH], tokens[WIDTH], depth[WIDTH];
    int interval;
} Branches;

static void show(Branches *of, const Matrix *matrix, int question, const int32_t *order, int from, int to) {
    of->interval = matrix->interval[question];
    for (int i = from; i < to; i++) {
        int at = question * matrix->branches + order[i];
        of->answers[i] = matrix->answers + (int64_t)at * matrix->depths;
        of->length[i] = matrix->lengths[at];
        of->tokens[i] = matrix->tokens[at];
        of->depth[i] = 1;
    }
}

static int latest(const Branches *of, int i) { return of->answers[i][of->depth[i] - 1]; }

static int final_answer(const Branches *of, int i) { return of->answers[i][of->length[i]]; }

static int ended(const Branches *of, int i) { return of->depth[i] > of->length[i]; }

/* Tokens of a branch that was read interval by interval. */
static int charged(const Branches *of, int i) {
    if (!ended(of, i))
        return of->interval * of->depth[i];
    int whole = of->interval * of->length[i];
    return whole > of->tokens[i] ? whole : of->tokens[i];
}

static Result answered(const Matrix *matrix, int question, int answer, int tokens) {
    return (Result){tokens, answer >= 0 && answer == matrix->gold[question]};
}

/* --- controllers ---------------------------------------------------------------------------------------- */

/* SC, ASC and ESC read branches in full: all, or until the vote is sure, or until a window agrees. */
static Result in_full(const Matrix *matrix, int kind, int q, const int32_t *order, Branches *of, Votes *votes) {
    int tokens = 0, agree = 1;
    show(of, matrix, q, order, 0, WIDTH);
    clear(votes, matrix->vocabulary);
    for (int i = 0; i < WIDTH; i++) {
        int answer = final_answer(of, i);
        tokens += of->tokens[i];
        add(votes, answer);
        if (kind == ASC && i > 0 && confidence(matrix, votes) > 0.95f)
            break;
        if (kind == ESC) {
            agree = i % 8 == 0 ? answer >= 0 : agree && answer == final_answer(of, i - 1);
            if (i % 8 == 7 && agree)
                return answered(matrix, q, answer, tokens);
        }
    }
    return answered(matrix, q, votes->winner, tokens);
}

static Result parallel_probe(const Matrix *matrix, int q, const int32_t *order, Branches *of) {
    int running[WIDTH], strayed[WIDTH] = {0}, count[ANSWERS];
    int kept = WIDTH, live = WIDTH, tokens = 0, stable = 0, before = -1, winner = -1, step = 0;
    show(of, matrix, q, order, 0, WIDTH);
    for (int i = 0; i < WIDTH; i++)
        running[i] = i;
    do {
        memset(count, 0, sizeof(int) * matrix->vocabulary);
        for (int j = 0; j < kept; j++) {
            int i = running[j];
            if (!ended(of, i)) {
                of->depth[i]++;
                live -= ended(of, i);
            }
            if (latest(of, i) >= 0)
                count[latest(of, i)]++;
        }
        int most = 0;
        winner = -1;
        for (int j = 0; j < kept; j++) {
            int answer = latest(of, running[j]);
            if (answer >= 0 && count[answer] > most) {
                most = count[answer];
                winner = answer;
            }
        }
        if (step >= 15 && kept > 1) {
            int left = 0;
            for (int j = 0; j < kept; j++) {
                int i = running[j];
                if (!ended(of, i)) {
                    strayed[i] = winner >= 0 && latest(of, i) == winner ? 0 : strayed[i] + 1;
                    if (strayed[i] >= 7) {
                        tokens += charged(of, i);
                        live--;
                        continue;
                    }
                }
                running[left++] = i;
            }
            kept = left;
        }
        stable = winner >= 0 && winner == before ? stable + 1 : 0;
        before = winner;
        step++;
    } while (stable < 40 && live && step < 100);
    for (int j = 0; j < kept; j++)
        tokens += charged(of, running[j]);
    return answered(matrix, q, winner, tokens);
}

static Result cmc(const Matrix *matrix, const Settings *set, int q, const int32_t *order, Branches *of, Votes *pool) {
    int live[WIDTH], strayed[WIDTH] = {0}, pruned[WIDTH] = {0};
    int opened = set->n_init < WIDTH ? set->n_init : WIDTH, lives = opened, round = 0, running = 1;
    float ema = 0, recent[8];
    show(of, matrix, q, order, 0, opened);
    clear(pool, matrix->vocabulary);
    for (int i = 0; i < opened; i++)
        live[i] = i;
    for (; running && round < ROUNDS; round++) {
        int warm = round >= set->warm_up, winner = pool->winner;
        ema = (1 - set->alpha) * ema + set->alpha * confidence(matrix, pool);

        if (warm && winner >= 0) { /* give up those that disagreed longest, but for two */
            int stubborn[WIDTH], count = 0, left = 0;
            for (int j = 0; j < lives; j++) {
                int i = live[j];
                strayed[i] = latest(of, i) == winner ? 0 : strayed[i] + 1;
                if (strayed[i] < set->patience)
                    continue;
                int at = count++;
                for (; at > 0 && strayed[stubborn[at - 1]] < strayed[i]; at--)
                    stubborn[at] = stubborn[at - 1];
                stubborn[at] = i;
            }
            for (int j = 0; j < count && j < lives - 2; j++)
                pruned[stubborn[j]] = 1;
            for (int j = 0; j < lives; j++)
                if (!pruned[live[j]])
                    live[left++] = live[j];
            lives = left;
        }

        int joined[WIDTH], was[WIDTH], joins = 0, left = 0; /* the branches that end, those read most first */
        for (int j = 0; j < lives; j++) {
            int i = live[j], depth = of->depth[i];
            of->depth[i] += warm && winner >= 0 && latest(of, i) == winner ? set->burst : 1;
            if (!ended(of, i)) {
                live[left++] = i;
                continue;
            }
            of->depth[i] = of->length[i] + 1;
            int at = joins++;
            for (; at > 0 && was[at - 1] < depth; at--) {
                joined[at] = joined[at - 1];
                was[at] = was[at - 1];
            }
            joined[at] = i;
            was[at] = depth;
        }
        lives = left;
        for (int j = 0; j < joins; j++)
            add(pool, final_answer(of, joined[j]));

        ema = (1 - set->alpha) * ema + set->alpha * confidence(matrix, pool);
        recent[round % 8] = ema;
        int back = round < set->ema_window - 1 ? round : set->ema_window - 1;
        float delta = ema - recent[(round - back) % 8];
        int sure = warm && pool->voters >= set->min_complete && ema >= set->threshold;
        running = !(sure && delta >= -set->slack) && lives;
        int first = set->warm_up / 2 > 1 ? set->warm_up / 2 : 1;
        if (running && delta <= set->trend && ema < set->threshold && round >= first) {
            int upto = opened + set->widen < set->max_use ? opened + set->widen : set->max_use;
            show(of, matrix, q, order, opened, upto);
            for (; opened < upto; opened++)
                live[lives++] = opened;
        }
    }
    int tokens = 0;
    for (int i = 0; i < opened; i++)
        tokens += charged(of, i);
    if (pool->winner < 0) { /* none has ended: the latest answers of those not given up vote */
        for (int i = 0; i < opened; i++)
            if (!pruned[i])
                add(pool, latest(of, i));
    }
    return answered(matrix, q, pool->winner, tokens);
}

void play(const Matrix *matrix, int kind, const Settings *settings, const int32_t *orders, const int32_t *question,
          const int32_t *row, const int32_t *setting, int episodes, Result *results) {
#pragma omp parallel for schedule(dynamic, 50)
    for (int e = 0; e < episodes; e++) {
        Branches branches;
        Votes votes;
        const int32_t *order = orders + (int64_t)row[e] * WIDTH;
        if (kind == CMC)
            results[e] = cmc(matrix, settings + setting[e], question[e], order, &branches, &votes);
        else if (kind == PARALLEL_PROBE)
            results[e] = parallel_probe(matrix, question[e], order, &branches);
        else
            results[e] = in_full(matrix, kind, question[e], order, &branches, &votes);
    }
}
