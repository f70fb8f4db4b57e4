package tercio.prism.ycsb;

import static tercio.prism.ycsb.Ops.*;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.security.SecureRandom;
import java.util.ArrayList;
import java.util.List;

/**
 * PRISM-RS's client side, as crates/prism/src/rs/client.rs has it, one operation at a time. All
 * replicas are asked at once, and a phase waits for all that are up: f + 1 of them must answer. The
 * record of a key that ends with a number is that block.
 */
final class RsStore implements Records {
  private static final int DESCRIBE = 1;
  private static final int FREES_AT_ONCE = 32;
  private static final int TAG_BYTES = 16;
  private static final int SLOT = 32;
  /** Where a slot has the address of its buffer. */
  private static final int ADDR = 16;
  private static final long PATIENCE_NS = 10_000_000_000L;
  private static final long CONNECT_AGAIN_NS = 1_000_000_000L;

  private final Member[] members;
  /** The most that was heard of each member's number of lives. */
  private final long[] lives;
  /** A name that no client has had, earlier starts included. */
  private final long writer = new SecureRandom().nextLong() | 1;
  private long lastTimestamp;

  RsStore(String host, int[] ports, String capability) throws IOException {
    members = new Member[ports.length];
    lives = new long[ports.length];
    for (int i = 0; i < ports.length; i++) {
      members[i] = new Member(i, host, ports[i], capability);
    }
    int up = 0;
    for (Member member : members) {
      up += member.isUp() ? 1 : 0;
    }
    if (up < quorum()) {
      throw new IOException(up + " of " + quorum() + " needed replicas can be reached");
    }
  }

  private int quorum() {
    return members.length / 2 + 1;
  }

  private static long block(String name) throws IOException {
    int digits = name.length();
    while (digits > 0 && Character.isDigit(name.charAt(digits - 1))) {
      digits--;
    }
    try {
      return Long.parseLong(name.substring(digits));
    } catch (NumberFormatException error) {
      throw new IOException("'" + name + "' does not end with the number of a block", error);
    }
  }

  @Override
  public byte[] get(String name) throws IOException {
    long block = block(name);
    List<Vote> votes = read(block, true);
    Vote newest = newest(votes);
    if (newest.timestamp == 0) {
      return null;
    }
    long agree = votes.stream().filter(vote -> compare(vote, newest) == 0).count();
    if (agree < quorum()) {
      write(block, newest.timestamp, newest.writer, newest.value);
    }
    return newest.value;
  }

  @Override
  public void put(String name, byte[] value) throws IOException {
    long block = block(name);
    long newest = newest(read(block, false)).timestamp;
    lastTimestamp = (Long.compareUnsigned(newest, lastTimestamp) > 0 ? newest : lastTimestamp) + 1;
    write(block, lastTimestamp, writer, value);
  }

  @Override
  public boolean delete(String name) throws IOException {
    throw new IOException("blocks cannot be removed");
  }

  private static int compare(Vote a, Vote b) {
    int first = Long.compareUnsigned(a.timestamp, b.timestamp);
    return first != 0 ? first : Long.compareUnsigned(a.writer, b.writer);
  }

  private static Vote newest(List<Vote> votes) {
    return votes.stream().max(RsStore::compare).orElseThrow();
  }

  private List<Vote> read(long block, boolean values) throws IOException {
    return phase(
        2,
        member -> {
          ByteBuffer ops = body(48);
          long slot = member.slot(block);
          if (values) {
            int length = TAG_BYTES + padded(member.blockBytes);
            op(ops, READ, INDIRECT | BOUNDED, 0, 0, length, slot + ADDR, 0);
          } else {
            op(ops, READ, 0, 0, 0, TAG_BYTES, slot, 0);
          }
          member.readLives(ops);
          return ops.flip();
        },
        (member, outcomes) -> {
          ByteBuffer held = outcomes[0].data;
          if (outcomes[0].status == NULL_POINTER && values) {
            return new Vote(0, 0, null);
          }
          if (outcomes[0].status != OK || held.remaining() < TAG_BYTES) {
            return null;
          }
          long timestamp = held.getLong();
          long by = held.getLong();
          byte[] value = new byte[held.remaining()];
          held.get(value);
          return new Vote(timestamp, by, value);
        });
  }

  /** When it ends, a quorum has this tag or a newer one. */
  private void write(long block, long timestamp, long by, byte[] value) throws IOException {
    int length = TAG_BYTES + padded(value.length);
    phase(
        5,
        member -> {
          if (value.length > member.blockBytes) {
            throw new IOException("a block has at most " + member.blockBytes + " bytes");
          }
          ByteBuffer chain = body(5 * 24 + 32 + length);
          // The slot as it will be, but for the address.
          op(chain, WRITE, 0, 0, 0, 32, SCRATCH, 0);
          chain.putLong(timestamp).putLong(by).putLong(0).putLong(TAG_BYTES + value.length);
          int flags = CONDITIONAL | REDIRECT;
          op(chain, ALLOCATE, flags, 0, member.pool, length, 0, SCRATCH + ADDR);
          chain.putLong(timestamp).putLong(by).put(value);
          chain.position(chain.position() + padded(value.length) - value.length);
          // Compares the tag, swaps all of the slot.
          int words = 0xf3;
          op(chain, CAS, CONDITIONAL | DATA_AT, GREATER, words, 32, member.slot(block), SCRATCH);
          op(chain, READ, 0, 0, 0, 8, SCRATCH + ADDR, 0);
          member.readLives(chain);
          return chain.flip();
        },
        (member, outcomes) -> {
          int allocated = outcomes[1].status;
          int swapped = outcomes[2].status;
          if (allocated == OK && swapped == OK) {
            member.free(outcomes[2].data.getLong(ADDR));
          } else if (allocated == OK && swapped == MISS) {
            // It has this tag or a newer one already: an acknowledgement, too.
            member.free(outcomes[3].data.getLong(0));
          } else {
            if (allocated == EMPTY) {
              member.report();
            }
            return null;
          }
          return new Vote(timestamp, by, value);
        });
  }

  private interface Fill {
    ByteBuffer of(Member member) throws IOException;
  }

  private interface Count {
    /** What an answer says; null when it does not count. */
    Vote of(Member member, Outcome[] outcomes) throws IOException;
  }

  private static final class Vote {
    final long timestamp;
    final long writer;
    final byte[] value;

    Vote(long timestamp, long writer, byte[] value) {
      this.timestamp = timestamp;
      this.writer = writer;
      this.value = value;
    }
  }

  /** Asks all replicas that are up, again until a quorum's answers count. */
  private List<Vote> phase(int count, Fill fill, Count read) throws IOException {
    long until = System.nanoTime() + PATIENCE_NS;
    while (true) {
      List<Member> asked = new ArrayList<>();
      for (Member member : members) {
        if (member.isUp()) {
          ByteBuffer ops = fill.of(member);
          if (member.send(ops, count)) {
            asked.add(member);
          }
        }
      }
      Vote[] votes = new Vote[members.length];
      long[] life = new long[members.length];
      for (Member member : asked) {
        Outcome[] outcomes = member.answer(count);
        if (outcomes == null) {
          continue;
        }
        ByteBuffer told = outcomes[count - 1].data;
        if (outcomes[count - 1].status != OK || told.remaining() != 8 * members.length) {
          member.forget();
          continue;
        }
        for (int i = 0; i < members.length; i++) {
          lives[i] = Math.max(lives[i], told.getLong(8 * i));
        }
        life[member.number] = told.getLong(8 * member.number);
        votes[member.number] = read.of(member, outcomes);
      }
      List<Vote> counted = new ArrayList<>();
      for (int i = 0; i < members.length; i++) {
        // What a replica said in an earlier life it has forgotten.
        if (votes[i] != null && life[i] >= lives[i]) {
          counted.add(votes[i]);
        }
      }
      if (counted.size() >= quorum()) {
        return counted;
      }
      if (System.nanoTime() > until) {
        throw new IOException(counted.size() + " of " + quorum() + " needed replicas answered");
      }
      Thread.yield();
    }
  }

  /** A replica, and where its memory is. */
  private final class Member {
    final int number;
    int blockBytes;
    int pool;
    private final String host;
    private final int port;
    private final String capability;
    private final List<Long> frees = new ArrayList<>();
    private PrismConnection connection;
    private long connectAgain = Long.MIN_VALUE;
    private long slots;
    private long blocks;
    private long livesAt;

    Member(int number, String host, int port, String capability) {
      this.number = number;
      this.host = host;
      this.port = port;
      this.capability = capability;
    }

    /** Whether it can be asked; connects to it now and then if it cannot. */
    boolean isUp() throws IOException {
      if (connection == null && System.nanoTime() >= connectAgain) {
        connectAgain = System.nanoTime() + CONNECT_AGAIN_NS;
        try {
          connection = new PrismConnection(host, port, capability);
          describe();
        } catch (IOException down) {
          forget();
        }
      }
      return connection != null;
    }

    private void describe() throws IOException {
      ByteBuffer question = body(8);
      question.putLong(DESCRIBE).flip();
      ByteBuffer map = connection.call(question);
      if (map.remaining() != 56) {
        throw new IOException("no replica is there");
      }
      slots = map.getLong();
      blocks = map.getLong();
      blockBytes = (int) map.getLong();
      pool = (int) map.getLong();
      livesAt = map.getLong();
      if (map.getLong() != number || map.getLong() != members.length) {
        throw new IOException("the replicas are of another group, or in another order");
      }
    }

    long slot(long block) throws IOException {
      if (block >= blocks) {
        throw new IOException("there is no block " + block);
      }
      return slots + block * SLOT;
    }

    void readLives(ByteBuffer out) {
      op(out, READ, 0, 0, 0, 8 * members.length, livesAt, 0);
    }

    boolean send(ByteBuffer ops, int count) {
      try {
        connection.send(PrismConnection.OPS, ops, count);
        return true;
      } catch (IOException down) {
        forget();
        return false;
      }
    }

    /** The outcomes of what was sent; null when it is down. */
    Outcome[] answer(int count) {
      try {
        return outcomes(connection.answer(), count);
      } catch (IOException down) {
        forget();
        return null;
      }
    }

    /** It is down, or another than it was. */
    void forget() {
      if (connection != null) {
        connection.close();
      }
      connection = null;
      frees.clear();
    }

    void free(long addr) {
      if (addr != 0) {
        frees.add(addr);
      }
      if (frees.size() >= FREES_AT_ONCE) {
        report();
      }
    }

    void report() {
      if (frees.isEmpty()) {
        return;
      }
      try {
        connection.call(takeFrees(frees));
      } catch (IOException down) {
        forget();
      }
    }
  }

  @Override
  public void close() {
    for (Member member : members) {
      if (member.connection != null) {
        member.report();
        member.forget();
      }
    }
  }
}
