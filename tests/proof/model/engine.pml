/* Claim, lease, epoch, sweep, checkpoint, wait, event and cancel of an execution, as the statements of the engine do them.
 *
 * What stands in one `atomic` is one statement, or one transaction under the execution's row lock; anything may happen between two of
 * them: a stop, a death, a lease that runs out, a take-over. Tasks 0 and 1 live in one process, which may die; task 2 in another.
 * A stalled worker is one that is not scheduled for a while: its lease may run out LATE times although it lives.
 *
 * Each -D below takes one mechanism away, and SPIN must then find what goes wrong:
 *   NO_EPOCH         writes name the owner alone            NO_FENCE        writes name nobody
 *   SAME_EPOCH       a claim does not raise the epoch       NO_LOCK         a claim reads, and writes in a second step
 *   NO_SKIP_LOCKED   a claim waits for a locked row         NO_FIRST_WINS   a later write of a step replaces the first
 *   NO_WAIT_LOCK     a wait looks and suspends in two steps STALE_SWEEP     a sweep looks and writes in two steps
 *   NO_SWEEP         nobody looks for expired leases        NO_WAKE         nobody looks for timeouts
 *   LATE_EVENT       an event is let in after the timeout   DUE_FIRST       the timeout wins over an event that came in time
 *   FORGET_WISH      a suspend does not look at the wish
 * The scene is one of TIMEOUT (a wait that ends by itself), CANCEL (a wait that may last for ever, and a wish) and CROWD (two rows that wait for
 * nothing, one of which somebody outside keeps locked).
 */

#ifdef CROWD
#define ROWS 2
#define LATE 0
#else
#define ROWS 1
#define LATE 1
#endif
#define TASKS 3
#define NOBODY 9
#define OWNER (_pid - 1) / 2
#define LAST (ROWS - 1)

mtype = { enqueued, running, waiting, completed, cancelled };
#define ENDED(r) (status[r] == completed || status[r] == cancelled)

mtype status[ROWS] = enqueued;
byte owner[ROWS] = NOBODY;
byte epoch[ROWS];
bool expired[ROWS], locked[ROWS], wish[ROWS];
byte result[ROWS];              /* of the step; 0: there is none */
bool waits[ROWS], due[ROWS], event[ROWS];
byte outcome[ROWS];             /* of the wait; 1: event, 2: timeout */
byte late = LATE, unheard = 1;  /* how often a living worker's lease may run out; how often an answer may get lost */
bool dead[2];

/* What is watched, and nobody acts on. */
byte given[ROWS];               /* the youngest epoch that a claim gave out */
byte first[ROWS];               /* the step's first result */
byte ends[ROWS];
bool accepted[ROWS], told[ROWS];

#ifdef NO_FENCE
#define HELD status[r] == running
#else
#ifdef NO_EPOCH
#define HELD status[r] == running && owner[r] == OWNER
#else
#define HELD status[r] == running && owner[r] == OWNER && epoch[r] == mine
#endif
#endif

/* Every write of a claim goes through here: under the row lock, with the fence. */
#define WRITE !locked[r]; if :: HELD -> assert(turn == given[r]) :: else -> goto lost fi

inline end_as(r, how) {
    ends[r]++;
    assert(ends[r] == 1);
    status[r] = how; owner[r] = NOBODY; expired[r] = false
}

inline put_back(r) {
    if
    :: wish[r] -> end_as(r, cancelled)
    :: else -> status[r] = enqueued; owner[r] = NOBODY; expired[r] = false
    fi
}

inline take(r) {
    assert(status[r] == enqueued);
    status[r] = running; owner[r] = OWNER; expired[r] = false;
#ifndef SAME_EPOCH
    epoch[r]++;
#endif
    mine = epoch[r];
    assert(mine > given[r]);    /* no two holders at one epoch */
    given[r] = mine; turn = mine
}

inline suspend(r) {
    if
#ifndef FORGET_WISH
    :: wish[r] -> end_as(r, cancelled)
    :: else -> status[r] = waiting; owner[r] = NOBODY; expired[r] = false
#else
    :: status[r] = waiting; owner[r] = NOBODY; expired[r] = false
#endif
    fi
}

proctype task() {
    byte r, mine, turn, value;
    {
end_idle:
        do
        ::  /* claim */
#ifdef NO_LOCK
            atomic { if :: status[0] == enqueued -> r = 0 :: status[LAST] == enqueued -> r = LAST fi }
            atomic { take(r) }
#else
#ifdef NO_SKIP_LOCKED
            atomic { if :: status[0] == enqueued -> r = 0 :: status[0] != enqueued && status[LAST] == enqueued -> r = LAST fi }
            atomic { !locked[r]; if :: status[r] == enqueued -> take(r) :: else -> goto lost fi }
#else
            atomic { if :: status[0] == enqueued && !locked[0] -> r = 0 :: status[LAST] == enqueued && !locked[LAST] -> r = LAST fi; take(r) }
#endif
#endif
            value = result[r];  /* load the checkpoints */
            do
            ::  value == 0 ->   /* the body of the step, and its checkpoint */
                atomic {
                    WRITE;
                    if :: value = 1 :: value = 2 fi;
                    if
                    :: result[r] == 0 -> result[r] = value; first[r] = value
#ifdef NO_FIRST_WINS
                    :: else -> result[r] = value
#else
                    :: else -> value = result[r]
#endif
                    fi;
                    assert(result[r] == first[r] && value == first[r]);
                    if :: unheard > 0 -> unheard--; value = 0 :: true fi    /* the answer may get lost: once more */
                }
            ::  else -> break
            od;

            /* heartbeat: as any write */
            if :: atomic { WRITE; expired[r] = false } :: skip fi;

#ifndef CROWD
#ifdef NO_WAIT_LOCK
            atomic { WRITE; waits[r] = true; if :: event[r] -> outcome[r] = 1; goto answered :: else -> skip fi }
            atomic { WRITE; suspend(r); goto lost }
#else
            atomic {
                WRITE;
                waits[r] = true;
                if
                :: outcome[r] != 0 -> skip
#ifdef DUE_FIRST
                :: outcome[r] == 0 && due[r] -> outcome[r] = 2
                :: outcome[r] == 0 && !due[r] && event[r] -> outcome[r] = 1
#else
                :: outcome[r] == 0 && event[r] -> outcome[r] = 1
                :: outcome[r] == 0 && !event[r] && due[r] -> outcome[r] = 2
#endif
                :: outcome[r] == 0 && !event[r] && !due[r] -> suspend(r); goto lost
                fi
            }
#endif
answered:
#endif
            atomic { WRITE; if :: wish[r] -> end_as(r, cancelled) :: else -> end_as(r, completed) fi }
lost:       atomic { r = 0; mine = 0; turn = 0; value = 0 }     /* nothing more is written; the next claim begins from nothing */
        od
    } unless { dead[OWNER] }
}

/* Any worker's sweep, any number of them at a time. */
proctype sweep(byte r) {
    mtype seen = enqueued;
end_idle:
    do
#ifndef NO_SWEEP
#ifdef STALE_SWEEP
    ::  atomic { status[r] == running && expired[r] -> seen = running }
        atomic { !locked[r]; assert(status[r] == running && expired[r]); put_back(r); seen = enqueued }
#else
    ::  atomic { !locked[r] && status[r] == running && expired[r] -> put_back(r) }
#endif
#endif
#ifndef NO_WAKE
    ::  atomic { !locked[r] && status[r] == waiting && due[r] && outcome[r] == 0 -> status[r] = enqueued }
#else
    ::  false
#endif
    od
}

/* The database's time: the leases of the dead run out, and sometimes one of the living. */
proctype time(byte r) {
end_idle:
    do
    ::  atomic { status[r] == running && !expired[r] && owner[r] < 2 && dead[owner[r]] -> expired[r] = true }
    ::  atomic { status[r] == running && !expired[r] && owner[r] < 2 && !dead[owner[r]] && late > 0 -> late--; expired[r] = true }
#ifdef TIMEOUT
    ::  atomic { waits[r] && !due[r] -> due[r] = true }
#endif
    od
}

/* Somebody outside who answers once, or never. */
proctype emitter(byte r) {
    if
    ::  atomic {
            !locked[r];
            told[r] = true;
            if
            :: ENDED(r) -> skip
#ifndef LATE_EVENT
            :: !ENDED(r) && (outcome[r] == 2 || (waits[r] && due[r])) -> skip
            :: !ENDED(r) && !(outcome[r] == 2 || (waits[r] && due[r])) ->
#else
            :: !ENDED(r) ->
#endif
                event[r] = true; accepted[r] = true;
                if :: status[r] == waiting -> status[r] = enqueued :: else -> skip fi
            fi
        }
    ::  skip
    fi
}

proctype canceller(byte r) {
    if
    ::  atomic {
            if
            :: status[r] == running -> wish[r] = true
            :: status[r] == enqueued || status[r] == waiting -> wish[r] = true; end_as(r, cancelled)
            :: ENDED(r) -> skip
            fi
        }
    ::  skip
    fi
}

proctype killer() {
    if :: dead[0] = true :: skip fi
}

/* A person at psql who locks the first row before anybody claims it, and may go to lunch. */
proctype outsider() {
end_idle:
    atomic { status[0] == enqueued -> locked[0] = true }
    if :: locked[0] = false :: skip fi
}

init {
    atomic {
        run task(); run task(); run task();
        run killer();
        run sweep(0); run time(0);
#ifdef CROWD
        run sweep(1); run time(1);
        run outsider();
#else
        run emitter(0);
#endif
#ifdef STALE_SWEEP
        run sweep(0);
#endif
#ifdef CANCEL
        run canceller(0);
#endif
    }
}

#ifdef TIMEOUT
/* Whoever dies: it ends. */
ltl finished { <> ENDED(0) }
/* Both sides agree on the one outcome. */
ltl agreed { [] !(accepted[0] && outcome[0] == 2) }
#endif
#ifdef CANCEL
ltl answered { [] (accepted[0] -> <> ENDED(0)) }
ltl remembered { [] (wish[0] -> <> ENDED(0)) }
#endif
#ifdef CROWD
/* The row that nobody keeps locked ends, and so does the other unless it is locked for ever. */
ltl passed { <> ENDED(1) }
ltl unlocked { (<> [] locked[0]) || (<> ENDED(0)) }
#endif
