/* libfibula.h: tables of names that a program changes and looks up. C11 and C++17; link with -lfibula.
 *
 *     struct fibula_options options = FIBULA_OPTIONS;
 *     struct fibula_table *table;
 *     options.names = "mac"; options.value_bits = 8; options.max_names = 1000000;
 *     if (fibula_table_new(&options, &table)) { fprintf(stderr, "%s\n", fibula_last_error()); exit(1); }
 *     fibula_table_set(table, mac, 6, port);
 *
 *     struct fibula_reader *reader;                       (one for each thread)
 *     fibula_reader_new(table, &reader);
 *     fibula_reader_lookup_burst(reader, names, 6, 32, values);
 *
 * A NAME THAT WAS NEVER SET GETS ANY VALUE from the designs concise, line, line-fast and line-small, and from ofw mostly
 * 0. Compact tables store no names where lookups read. Use them for names that are known to be set, or check afterwards:
 * fibula_table_get knows exactly.
 *
 * Every function returns FIBULA_OK, or a code below 0; then fibula_last_error says what to do. Results count only after
 * FIBULA_OK; a handle that was not made is NULL.
 *
 * Functions of a table may be called from any thread: a lock lets one at a time work. A reader is for one thread at a time,
 * never waits for the writer, and takes no lock but once after its table was shared. Free nothing that another thread uses.
 *
 * Pointers lead to as much as their length says; strings end with 0. NULL, wrong lengths and most handles that are none are
 * refused; a freed handle cannot always be told.
 *
 * A program may include fibula.h, too, which reads exports and shared tables without this library. docs/how-to/use-libfibula.md
 * has more. This file is made from crates/capi by cbindgen. */

#ifndef LIBFIBULA_H
#define LIBFIBULA_H

#include <stddef.h>
#include <stdint.h>

/* Options with everything unset but their size. */
#define FIBULA_OPTIONS {sizeof(struct fibula_options), NULL, NULL, NULL, NULL, 0, 0}

/*
 What functions return. `fibula_last_error` says it in words, with what to do.
 */
enum fibula_code {
        /*
         Done.
         */
        FIBULA_OK = 0,
        /*
         An argument is NULL, of the wrong length, or out of range.
         */
        FIBULA_EINVAL = -1,
        /*
         The table does not have this name.
         */
        FIBULA_ENOENT = -2,
        /*
         The table has as many names as it may have.
         */
        FIBULA_EFULL = -3,
        /*
         The name finds no place under this hash key: create the table again, with another key.
         */
        FIBULA_EPLACE = -4,
        /*
         A thread in the middle of a lookup keeps old memory from being used again. The change waits: fibula_table_sync carries it
         out later.
         */
        FIBULA_EAGAIN = -5,
        /*
         No memory.
         */
        FIBULA_ENOMEM = -6,
        /*
         A file cannot be made or written.
         */
        FIBULA_EIO = -7,
        /*
         An earlier update was lost, or the update is of another table: create the follower again from an export.
         */
        FIBULA_EGAP = -8,
        /*
         These bytes are damaged, or not from this library.
         */
        FIBULA_EDAMAGED = -9,
        /*
         The reader is in use by another thread.
         */
        FIBULA_EBUSY = -10,
        /*
         A follower changes by fibula_table_apply only.
         */
        FIBULA_EFOLLOWER = -11,
        /*
         The design or the width of the values does not allow this.
         */
        FIBULA_EUNSUPPORTED = -12,
        /*
         A bug of the library. The handle is of no use any more: free it.
         */
        FIBULA_EPANIC = -13,
};

/*
 A thread's access to a table. The mark is first, as in a table: one is not taken for the other.
 */
struct fibula_reader;

/*
 A set of names with values. The mark is first, so that it can be read whatever a pointer leads to.
 */
struct fibula_table;

/*
 Options for creating a table. Begin with `struct fibula_options options = FIBULA_OPTIONS;`.
 */
struct fibula_options {
        /*
         sizeof (struct fibula_options), so that later versions can have more.
         */
        size_t bytes;
        /*
         "concise" (also NULL), "ofw", "line", "line-fast" or "line-small". A name that was never set gets any value of
         concise and the lines, and mostly 0 of ofw.
         */
        const char *design;
        /*
         What names are: "mac", "ipv4", "ipv6", "5-tuple", "teid", "fixed:N" for N bytes (1 to 64), or "text". Required.
         */
        const char *names;
        /*
         How names are hashed: "muladd" (also NULL), "wy", "siphash13" or "crc32c".
         */
        const char *hash;
        /*
         The secret hash key, 32 bytes; NULL: a random one. Who has it can choose names that a table holds badly.
         */
        const uint8_t *key;
        /*
         Most names. It bounds memory that is reserved, not memory that is used.
         */
        uint64_t max_names;
        /*
         Bits of a value: 1 to 32 (ofw: 24); at most 16 to export, share or follow the table.
         */
        uint32_t value_bits;
};

/*
 The meaning of a value for programs that read an export, a follower's export, or a shared table.
 */
struct fibula_meaning {
        /*
         The value, from 1. 0 is drop.
         */
        uint32_t value;
        /*
         As enum fibula_verb of fibula.h: 0 drop, 1 port, 2 local, 3 tunnel, 4 punt.
         */
        uint32_t verb;
        /*
         The port (up to 65535), or the node of a tunnel; else 0.
         */
        uint32_t number;
        /*
         4 or 16, of a tunnel; else 0.
         */
        uint32_t address_bytes;
        /*
         The other end of a tunnel, in network order.
         */
        uint8_t address[16];
};

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/*
 What went wrong in the last call of this thread that failed, and what to do about it. Valid until the next call that
 fails in this thread; empty if none failed. Never NULL.
 */
const char *fibula_last_error(void);

/*
 The version of the library that runs, as "0.1.0".
 */
const char *fibula_version(void);

/*
 Makes an empty table.
 */
int fibula_table_new(const struct fibula_options *options, struct fibula_table **table);

/*
 Frees a table, once no other thread uses it. Its readers stay valid. A file where it was shared stays, with its last
 values. NULL is allowed.
 */
int fibula_table_free(struct fibula_table *table);

/*
 Gives a name a value, whether or not it has one. 0 usually means drop.
 FIBULA_EAGAIN, FIBULA_ENOMEM: readers, or memory, keep lookups from showing it. The text says whether the change was
 made; if so, fibula_table_sync shows it later, else repeat the call.
 */
int fibula_table_set(struct fibula_table *table, const void *name, size_t name_bytes, uint32_t value);

/*
 Gives n names of one length values. They begin stride bytes apart; of equal names the last counts. Much faster than one
 by one for many names. If it fails, some of the names may have their values.
 */
int fibula_table_set_batch(struct fibula_table *table,
                           const void *names,
                           size_t name_bytes,
                           size_t stride,
                           const uint32_t *values,
                           size_t n);

/*
 Removes a name. FIBULA_ENOENT if it is not there. Afterwards lookups give what they give for names that were never set;
 concise and ofw give 0 until the part of the table is rebuilt.
 */
int fibula_table_remove(struct fibula_table *table, const void *name, size_t name_bytes);

/*
 The value of a name as it was set, or FIBULA_ENOENT: exact, unlike a lookup by a reader, but it waits for the lock of the
 table. A follower stores no names.
 */
int fibula_table_get(struct fibula_table *table,
                     const void *name,
                     size_t name_bytes,
                     uint32_t *value);

/*
 The number of names; in a follower, that of the table it follows.
 */
int fibula_table_count(struct fibula_table *table, uint64_t *n);

/*
 Carries out changes that wait for readers. FIBULA_EAGAIN while a thread is in the middle of a lookup with old memory: try
 again. Readers that sleep, or whose thread ended, are not waited for.
 */
int fibula_table_sync(struct fibula_table *table);

/*
 Says what values mean to other programs: without this, a value is the number of a port, and 0 is drop. Other programs see
 all of it at once. With changes recorded, the next fibula_table_updates gives the whole table, so that followers have it.
 Cost: 24 bytes for each possible value where the table is shared; give all values in one call. If it fails, nothing
 changed.
 */
int fibula_table_set_actions(struct fibula_table *table,
                             const struct fibula_meaning *meanings,
                             size_t n);

/*
 The table as the bytes of a FIB file, which fibula_load of fibula.h and `fibula fib lookup` read: a value is the number of
 a port unless fibula_table_set_actions says otherwise, and 0 is drop. They have the hash key. Free them by fibula_bytes_free.
 */
int fibula_table_export(struct fibula_table *table,
                        uint8_t **bytes,
                        size_t *len);

/*
 Shows the table at a path, where fibula_attach of fibula.h reads it in place while it changes, from other programs. Best
 on a file system in memory, as /dev/shm. It replaces what is there. The table moves to the file; its readers follow at
 their next lookup, and each keeps the memory before until then. Values have at most 16 bits.
 */
int fibula_table_share(struct fibula_table *table,
                       const char *path);

/*
 Moves the table to memory of the program's, from which other processes that map it read it in place by
 fibula_attach_memory of fibula.h: a memzone of DPDK with its secondary processes, for example. The memory begins at a
 multiple of 64 bytes, and is cleared first. It is the table's until the table and all its readers are freed, or the table
 moves again and every reader has looked up since. The table grows within it; then changes fail with FIBULA_ENOMEM, and the
 table stays as it is until it moves to more. Values have at most 16 bits.
 FIBULA_ENOMEM: these bytes hold less than the table has.
 */
int fibula_table_place(struct fibula_table *table,
                       void *memory,
                       size_t bytes);

/*
 The most bytes that fibula_table_place can use for this table: those of as many names as it may have.
 */
int fibula_table_most_bytes(struct fibula_table *table, size_t *bytes);

/*
 Begins to record changes for followers. Changes from now on are in what fibula_table_updates gives. Call it before
 fibula_table_export.
 */
int fibula_table_record(struct fibula_table *table);

/*
 The changes since the last call, or since fibula_table_record, as bytes for fibula_table_apply of every follower; the whole
 table, where that is shorter. Free them by fibula_bytes_free. Followers need them in order; one that has some of them
 already, because it was made from a later export, ignores those.
 */
int fibula_table_updates(struct fibula_table *table,
                         uint8_t **bytes,
                         size_t *len);

/*
 Makes a table that follows the one of an export: readers look up in it, and fibula_table_apply changes it. It stores no
 names.
 */
int fibula_table_follow(const void *bytes, size_t len, struct fibula_table **table);

/*
 Changes a follower by bytes of fibula_table_updates, or of a later fibula_table_export.
 FIBULA_EGAP: bytes before these were lost; apply an export. FIBULA_EAGAIN: readers keep old memory; apply the same bytes
 again.
 */
int fibula_table_apply(struct fibula_table *table,
                       const void *bytes,
                       size_t len);

/*
 Frees bytes that a function gave, with the length that it said. NULL is allowed.
 */
int fibula_bytes_free(uint8_t *bytes, size_t len);

/*
 Makes a reader of the table, for one thread at a time. Any thread may call this. A reader stays valid, with the last
 values of the table, when the table is freed.
 */
int fibula_reader_new(struct fibula_table *table, struct fibula_reader **reader);

/*
 Frees a reader. NULL is allowed.
 */
int fibula_reader_free(struct fibula_reader *reader);

/*
 Looks up one name. A name that is not in the table gets what its design gives: any value, or mostly 0 with ofw.
 fibula_reader_lookup_burst takes less time a name.
 */
int fibula_reader_lookup(struct fibula_reader *reader, const void *name, size_t name_bytes, uint32_t *value);

/*
 Looks up n names of one length, best 32 at a time: their words are fetched together. Each value is one that the name had
 during the call. No lock, no allocation; lookups never wait for the writer.
 */
int fibula_reader_lookup_burst(struct fibula_reader *reader,
                               const void *const *names,
                               size_t name_bytes,
                               size_t n,
                               uint32_t *values);

/*
 Says that the thread will not look up for a while. Call it before the thread sleeps or waits: the memory of old
 parts of the table is kept until every reader has looked up again, or is offline. A change that needs the memory takes
 readers offline that no thread looks up by. The next lookup ends it.
 */
int fibula_reader_offline(struct fibula_reader *reader);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* LIBFIBULA_H */
