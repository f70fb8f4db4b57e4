package tercio.prism.ycsb;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.List;

/** The bytes of operations and their outcomes, as docs/format-prism.md has them. */
final class Ops {
  static final int READ = 1;
  static final int WRITE = 2;
  static final int ALLOCATE = 3;
  static final int CAS = 4;
  static final int INDIRECT = 1;
  static final int BOUNDED = 2;
  static final int DATA_AT = 4;
  static final int CONDITIONAL = 8;
  static final int REDIRECT = 16;
  static final int COMPARAND = 32;
  /** A mode of CAS. */
  static final int GREATER = 1;

  static final int OK = 0;
  static final int MISS = 1;
  static final int EMPTY = 3;
  static final int NULL_POINTER = 5;
  static final int UNKNOWN_REGION = 6;
  static final int OUT_OF_RANGE = 8;
  static final int STALE = 10;

  static final long SCRATCH = 255L << 40;

  private static final int FREE = 0;

  private Ops() {}

  static ByteBuffer body(int bytes) {
    return ByteBuffer.allocate(bytes).order(ByteOrder.LITTLE_ENDIAN);
  }

  static int padded(int bytes) {
    return (bytes + 7) / 8 * 8;
  }

  static void op(
      ByteBuffer out, int code, int flags, int mode, int select, int length, long addr, long aux) {
    out.put((byte) code).put((byte) flags).put((byte) mode).put((byte) select).putInt(length);
    out.putLong(addr).putLong(aux);
  }

  /** The call that gives buffers back; the list is empty afterwards. */
  static ByteBuffer takeFrees(List<Long> frees) {
    ByteBuffer call = body(8 + 8 * frees.size());
    call.putLong(FREE);
    frees.forEach(call::putLong);
    frees.clear();
    return call.flip();
  }

  /** How an operation ended. */
  static final class Outcome {
    final int status;
    final ByteBuffer data;

    private Outcome(int status, ByteBuffer data) {
      this.status = status;
      this.data = data;
    }
  }

  static Outcome[] outcomes(ByteBuffer answer, int count) throws IOException {
    Outcome[] outcomes = new Outcome[count];
    for (int i = 0; i < count; i++) {
      if (answer.remaining() < 8) {
        throw new IOException("the answer is too short");
      }
      int status = answer.getInt();
      int length = answer.getInt();
      if (length < 0 || padded(length) > answer.remaining()) {
        throw new IOException("the answer is too short");
      }
      ByteBuffer data = answer.slice().order(ByteOrder.LITTLE_ENDIAN);
      data.limit(length);
      answer.position(answer.position() + padded(length));
      outcomes[i] = new Outcome(status, data);
    }
    return outcomes;
  }
}
