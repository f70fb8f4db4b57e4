package tercio.prism.ycsb;

import static tercio.prism.ycsb.Ops.*;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

/** PRISM-KV's client side, as crates/prism/src/kv/prism.rs has it, one command at a time. */
final class PrismStore implements Records {
  private static final int DESCRIBE = 2;
  private static final int FREES_AT_ONCE = 32;
  private static final int MAX_ATTEMPTS = 1000;
  private static final int MAX_WAITS = 5000;

  private static final long TOMBSTONE = 1L << 16;
  /** What a slot holds that has moved to a table of twice the size. */
  private static final long MOVED = SCRATCH + 72;

  private final PrismConnection connection;
  private final List<Long> frees = new ArrayList<>();
  private long table;
  private long slots;
  /** While the table grows, the one whose slots are moving: searches begin there. */
  private long oldTable;
  private long oldSlots;
  private long hash;
  private long seed;
  private long[] pools;

  PrismStore(PrismConnection connection) throws IOException {
    this.connection = connection;
    describe();
  }

  private void describe() throws IOException {
    ByteBuffer question = body(8);
    question.putLong(DESCRIBE).flip();
    ByteBuffer answer = connection.call(question);
    table = answer.getLong();
    slots = answer.getLong();
    oldTable = answer.getLong();
    oldSlots = answer.getLong();
    hash = answer.getLong();
    seed = answer.getLong();
    pools = new long[answer.remaining() / 8];
    for (int i = 0; i < pools.length; i++) {
      pools[i] = answer.getLong();
    }
  }

  @Override
  public byte[] get(String name) throws IOException {
    byte[] key = name.getBytes(StandardCharsets.UTF_8);
    Search search = new Search(key);
    for (int attempt = 0; attempt < MAX_ATTEMPTS; attempt++) {
      int longest = (int) (pools[pools.length - 1] >>> 8);
      ByteBuffer ops = body(24);
      op(ops, READ, INDIRECT | BOUNDED, 0, 0, longest, search.slot(), 0);
      ops.flip();
      Outcome[] outcomes = outcomes(connection.ops(ops, 1), 1);
      switch (outcomes[0].status) {
        case OK:
          break;
        case NULL_POINTER:
          return null;
        case OUT_OF_RANGE:
          search.goOn();
          continue;
        case UNKNOWN_REGION:
        case STALE:
          search.again();
          continue;
        default:
          throw new IOException("a READ ended with status " + outcomes[0].status);
      }
      ByteBuffer item = outcomes[0].data;
      if (!hasKey(item, key)) {
        search.probe++;
        continue;
      }
      long header = item.getLong(0);
      if ((header & TOMBSTONE) != 0) {
        return null;
      }
      byte[] value = new byte[(int) (header >>> 32)];
      item.position(8 + padded(key.length));
      item.get(value);
      return value;
    }
    throw new IOException("gave up after many attempts");
  }

  @Override
  public void put(String name, byte[] value) throws IOException {
    byte[] key = name.getBytes(StandardCharsets.UTF_8);
    ByteBuffer item = body(8 + padded(key.length) + padded(value.length));
    item.putLong(key.length | (long) value.length << 32).put(key);
    item.position(8 + padded(key.length));
    item.put(value);
    store(key, item.array(), false);
  }

  @Override
  public boolean delete(String name) throws IOException {
    byte[] key = name.getBytes(StandardCharsets.UTF_8);
    ByteBuffer item = body(8 + padded(key.length));
    item.putLong(key.length | TOMBSTONE).put(key);
    return store(key, item.array(), true);
  }

  private boolean store(byte[] key, byte[] item, boolean delete) throws IOException {
    Search search = new Search(key);
    int waits = 0;
    boolean missed = false;
    for (int attempt = 0; attempt < MAX_ATTEMPTS; attempt++) {
      long slot = search.slot();
      // The slot first: if it changes between the two, the swap misses.
      ByteBuffer look = body(48);
      op(look, READ, 0, 0, 0, 16, slot, 0);
      op(look, READ, INDIRECT | BOUNDED, 0, 0, 8 + padded(key.length), slot, 0);
      look.flip();
      Outcome[] seen = outcomes(connection.ops(look, 2), 2);
      if (seen[0].status != OK || seen[1].status == UNKNOWN_REGION || seen[1].status == STALE) {
        search.again();
        missed = false;
        continue;
      }
      long old = seen[0].data.getLong(0);
      if (old == MOVED || seen[1].status == OUT_OF_RANGE) {
        search.goOn();
        missed = false;
        continue;
      }
      if (seen[1].status == OK) {
        if (!hasKey(seen[1].data, key)) {
          search.probe++;
          continue;
        }
        if (delete && (seen[1].data.getLong(0) & TOMBSTONE) != 0) {
          return false;
        }
        if (missed && !delete) {
          return true;
        }
      } else if (seen[1].status != NULL_POINTER) {
        throw new IOException("a READ ended with status " + seen[1].status);
      } else if (delete) {
        return false;
      }
      Outcome[] chain = outcomes(connection.ops(chain(slot, old, item), 4), 4);
      if (chain[2].status == OK) {
        if (old != 0) {
          free(old);
        }
        return true;
      }
      long unused = chain[3].data.getLong(0);
      if (unused != 0) {
        free(unused);
      }
      if (chain[1].status == EMPTY) {
        if (++waits > MAX_WAITS) {
          throw new IOException("the store is out of room");
        }
        attempt--;
        report();
        Thread.yield();
      } else if (chain[2].status == MISS) {
        missed = true;
      } else {
        search.again();
        missed = false;
      }
    }
    throw new IOException("gave up after many attempts");
  }

  private ByteBuffer chain(long slot, long old, byte[] item) throws IOException {
    int pool = pool(item.length);
    ByteBuffer chain = body(4 * 24 + 8 + item.length + 16);
    op(chain, WRITE, 0, 0, 0, 8, SCRATCH + 8, 0);
    chain.putLong(item.length);
    op(chain, ALLOCATE, CONDITIONAL | REDIRECT, 0, pool, item.length, 0, SCRATCH);
    chain.put(item);
    // Compares the pointer, swaps pointer and bound.
    op(chain, CAS, CONDITIONAL | DATA_AT | COMPARAND, 0, 0x31, 16, slot, SCRATCH);
    chain.putLong(old).putLong(0);
    op(chain, READ, 0, 0, 0, 8, SCRATCH, 0);
    chain.flip();
    return chain;
  }

  private void free(long addr) throws IOException {
    frees.add(addr);
    if (frees.size() >= FREES_AT_ONCE) {
      report();
    }
  }

  private void report() throws IOException {
    if (!frees.isEmpty()) {
      connection.call(takeFrees(frees));
    }
  }

  private int pool(int bytes) throws IOException {
    for (long pool : pools) {
      if (pool >>> 8 >= bytes) {
        return (int) (pool & 0xff);
      }
    }
    throw new IOException("the item is longer than the store's largest buffers");
  }

  /** Where a key may be: slot after slot, first of the old table, if there is one. */
  private final class Search {
    private final byte[] key;
    private long probe;
    private boolean beyond;

    Search(byte[] key) {
      this.key = key;
    }

    long slot() throws IOException {
      boolean old = oldTable != 0 && !beyond;
      long count = old ? oldSlots : slots;
      if (probe >= count) {
        throw new IOException("the store is out of room");
      }
      return (old ? oldTable : table) + (((hash(key) + probe) & (count - 1)) << 4);
    }

    /** The slot has moved to the table that replaces its own. */
    void goOn() throws IOException {
      if (oldTable == 0 || beyond) {
        again();
      } else {
        beyond = true;
        probe = 0;
      }
    }

    /** The table is elsewhere. */
    void again() throws IOException {
      describe();
      beyond = false;
      probe = 0;
    }
  }

  private long hash(byte[] key) {
    if (hash == 1) {
      return word(key, 0);
    }
    long h = seed ^ key.length;
    for (int at = 0; at < key.length; at += 8) {
      h = mix(h ^ word(key, at)) * 0x9e3779b97f4a7c15L;
    }
    return mix(h);
  }

  private static long mix(long x) {
    x = (x ^ x >>> 30) * 0xbf58476d1ce4e5b9L;
    x = (x ^ x >>> 27) * 0x94d049bb133111ebL;
    return x ^ x >>> 31;
  }

  private static long word(byte[] bytes, int at) {
    long word = 0;
    for (int i = 0; i < 8 && at + i < bytes.length; i++) {
      word |= (bytes[at + i] & 0xffL) << (8 * i);
    }
    return word;
  }

  private static boolean hasKey(ByteBuffer item, byte[] key) {
    if (item.limit() < 8 + key.length || (item.getShort(0) & 0xffff) != key.length) {
      return false;
    }
    byte[] there = new byte[key.length];
    ByteBuffer copy = item.duplicate();
    copy.position(8);
    copy.get(there);
    return Arrays.equals(there, key);
  }

  @Override
  public void close() {
    try {
      report();
    } catch (IOException gone) {
      // The server's sweep finds what is left.
    }
    connection.close();
  }
}
