/* Changes a table while two threads look names up in it, and reads it as another program would: control PATH.
 * PATH is where the table is shared, best in /dev/shm. Prints what it found.
 * Build: cc -O2 examples/c/control.c -o control -pthread $(pkg-config --cflags --libs fibula) */
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#include "fibula.h"
#include "libfibula.h"

#define N_NAMES 10000
#define N_ROUNDS 20
#define N_THREADS 2

struct name { uint8_t mac[6]; };

struct looker {
	struct fibula_reader *reader;
	const struct name *names;
	const int *is_done;
	uint64_t n_looked_up, n_wrong;
};

static void done(int code, const char *what)
{
	if (code != FIBULA_OK) {
		fprintf(stderr, "%s: %s\n", what, fibula_last_error());
		exit(1);
	}
}

static void *look_up(void *argument)
{
	struct looker *looker = (struct looker *)argument;
	do {
		for (size_t first = 0; first + FIBULA_BURST <= N_NAMES; first += FIBULA_BURST) {
			const void *burst[FIBULA_BURST];
			uint32_t ports[FIBULA_BURST];
			for (size_t i = 0; i < FIBULA_BURST; i++)
				burst[i] = looker->names[first + i].mac;
			done(fibula_reader_lookup_burst(looker->reader, burst, 6, FIBULA_BURST, ports), "a lookup");
			/* Each name is at port 1 or 2, whatever the writer does meanwhile. */
			for (size_t i = 0; i < FIBULA_BURST; i++)
				looker->n_wrong += ports[i] != 1 && ports[i] != 2;
			looker->n_looked_up += FIBULA_BURST;
		}
	} while (!__atomic_load_n(looker->is_done, __ATOMIC_ACQUIRE));
	/* A thread that waits for something else keeps no memory of the table. */
	done(fibula_reader_offline(looker->reader), "offline");
	return NULL;
}

/* How often a change is tried that waits for a thread in the middle of a lookup. */
#define N_TRIES 1000

static void set(struct fibula_table *table, const struct name *name, uint32_t port)
{
	int code = fibula_table_set(table, name->mac, 6, port);
	for (int i = 0; code == FIBULA_EAGAIN && i < N_TRIES; i++) {
		sched_yield();
		code = fibula_table_set(table, name->mac, 6, port);
	}
	done(code, "a change");
}

int main(int argc, char **argv)
{
	static struct name names[N_NAMES];
	static uint32_t ports[N_NAMES];
	struct fibula_options options = FIBULA_OPTIONS;
	struct fibula_table *table;
	struct looker lookers[N_THREADS];
	pthread_t threads[N_THREADS];
	uint64_t n_wrong = 0, n_outside = 0, count;
	uint32_t value;
	int is_done = 0;
	char why[FIBULA_WHY];

	if (argc != 2) {
		fprintf(stderr, "usage: control PATH\n");
		return 2;
	}
	options.design = "concise";
	options.names = "mac";
	options.value_bits = 8;
	options.max_names = 1000000;
	done(fibula_table_new(&options, &table), "a table");
	for (uint32_t i = 0; i < N_NAMES; i++) {
		const uint8_t mac[6] = {2, 0, (uint8_t)(i >> 24), (uint8_t)(i >> 16), (uint8_t)(i >> 8), (uint8_t)i};
		memcpy(names[i].mac, mac, 6);
		ports[i] = 1;
	}
	done(fibula_table_set_batch(table, names, 6, sizeof names[0], ports, N_NAMES), "a batch");

	/* Before there are readers: the table moves to the file. */
	done(fibula_table_share(table, argv[1]), "sharing");
	struct fibula_fib *other = fibula_attach(argv[1], why);
	if (!other) {
		fprintf(stderr, "%s\n", why);
		return 1;
	}

	for (int t = 0; t < N_THREADS; t++) {
		lookers[t].names = names;
		lookers[t].is_done = &is_done;
		lookers[t].n_looked_up = lookers[t].n_wrong = 0;
		done(fibula_reader_new(table, &lookers[t].reader), "a reader");
		if (pthread_create(&threads[t], NULL, look_up, &lookers[t])) {
			fprintf(stderr, "no thread\n");
			return 1;
		}
	}
	for (uint32_t round = 1; round <= N_ROUNDS; round++)
		for (int i = 0; i < N_NAMES; i++)
			set(table, &names[i], 1 + round % 2);
	__atomic_store_n(&is_done, 1, __ATOMIC_RELEASE);
	for (int t = 0; t < N_THREADS; t++) {
		pthread_join(threads[t], NULL);
		n_wrong += lookers[t].n_wrong;
		done(fibula_reader_free(lookers[t].reader), "freeing");
	}

	/* The other program has each change, too. */
	for (int i = 0; i < N_NAMES; i++) {
		struct fibula_action action = fibula_action(other, fibula_lookup(other, names[i].mac, 6));
		n_outside += action.verb == FIBULA_PORT && action.port == 1 + N_ROUNDS % 2;
	}
	done(fibula_table_remove(table, names[0].mac, 6), "a removal");
	if (fibula_table_get(table, names[0].mac, 6, &value) != FIBULA_ENOENT)
		fprintf(stderr, "a removed name is there\n");
	done(fibula_table_count(table, &count), "the number of names");
	printf("%llu names, %llu wrong values, %llu names by fibula.h\n", (unsigned long long)count,
		(unsigned long long)n_wrong, (unsigned long long)n_outside);
	fibula_free(other);
	done(fibula_table_free(table), "freeing");
	return n_wrong != 0;
}
