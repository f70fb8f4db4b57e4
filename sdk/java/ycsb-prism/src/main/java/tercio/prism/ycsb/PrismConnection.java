package tercio.prism.ycsb;

import java.io.IOException;
import java.net.DatagramPacket;
import java.net.DatagramSocket;
import java.net.InetAddress;
import java.net.SocketTimeoutException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.security.SecureRandom;

/**
 * One connection to a PRISM server over UDP: numbers requests, sends them again until they are
 * answered, and reads answers. One request is under way at a time. The bytes are those of
 * docs/format-prism.md.
 */
final class PrismConnection implements AutoCloseable {
  static final int OPS = 0;
  static final int CALL = 2;

  private static final int CONNECT = 1;
  private static final int BYE = 3;
  private static final int REJECTED = 4;
  private static final int MAGIC = 0x5250;
  private static final int VERSION = 1;
  private static final int REQUEST_HEADER = 40;
  private static final int ANSWER_HEADER = 24;
  private static final int MAX_DATAGRAM = 65536;
  private static final int FIRST_WAIT_MS = 20;
  private static final int MAX_SENDS = 10;

  private final DatagramSocket socket;
  private final long keyLow;
  private final long keyHigh;
  private final byte[] received = new byte[MAX_DATAGRAM];
  private int connection;
  private long number;
  private byte[] pending;
  private int pendingKind;

  PrismConnection(String host, int port, String capability) throws IOException {
    if (!capability.matches("[0-9a-fA-F]{32}")) {
      throw new IOException("a capability has 32 hexadecimal digits");
    }
    keyHigh = Long.parseUnsignedLong(capability.substring(0, 16), 16);
    keyLow = Long.parseUnsignedLong(capability.substring(16), 16);
    socket = new DatagramSocket();
    socket.connect(InetAddress.getByName(host), port);
    long nonce = new SecureRandom().nextLong();
    byte[] greeting = frame(CONNECT, nonce, 0, ByteBuffer.allocate(0));
    socket.send(new DatagramPacket(greeting, greeting.length));
    ByteBuffer answer = await(greeting, CONNECT, nonce);
    connection = answer.getInt(4);
  }

  /** Runs the operations in {@code body}; gives the answer's body. */
  ByteBuffer ops(ByteBuffer body, int count) throws IOException {
    return request(OPS, body, count);
  }

  /** Calls the service; gives the answer's body. */
  ByteBuffer call(ByteBuffer body) throws IOException {
    return request(CALL, body, 0);
  }

  private ByteBuffer request(int kind, ByteBuffer body, int count) throws IOException {
    send(kind, body, count);
    return answer();
  }

  /** Sends a request; {@link #answer} waits for what comes back. */
  void send(int kind, ByteBuffer body, int count) throws IOException {
    pendingKind = kind;
    pending = frame(kind, number++, count, body);
    socket.send(new DatagramPacket(pending, pending.length));
  }

  /** The body of the answer to the last request. */
  ByteBuffer answer() throws IOException {
    ByteBuffer answer = await(pending, pendingKind, number - 1);
    answer.position(ANSWER_HEADER);
    return answer.slice().order(ByteOrder.LITTLE_ENDIAN);
  }

  private byte[] frame(int kind, long mine, int count, ByteBuffer body) {
    ByteBuffer frame =
        ByteBuffer.allocate(REQUEST_HEADER + body.remaining()).order(ByteOrder.LITTLE_ENDIAN);
    frame.putShort((short) MAGIC).put((byte) VERSION).put((byte) kind).putInt(connection);
    frame.putLong(mine).putLong(keyLow).putLong(keyHigh);
    frame.putInt(body.remaining()).putInt(count).put(body);
    return frame.array();
  }

  /** Waits for the answer to a frame that was sent, and sends it again; what else arrives is not looked at. */
  private ByteBuffer await(byte[] frame, int kind, long mine) throws IOException {
    for (int sends = 0; sends < MAX_SENDS; sends++) {
      if (sends > 0) {
        socket.send(new DatagramPacket(frame, frame.length));
      }
      long deadline = System.nanoTime() + ((long) FIRST_WAIT_MS << Math.min(sends, 6)) * 1_000_000L;
      while (true) {
        long leftMs = (deadline - System.nanoTime()) / 1_000_000L;
        if (leftMs <= 0) {
          break;
        }
        socket.setSoTimeout((int) leftMs);
        DatagramPacket packet = new DatagramPacket(received, received.length);
        try {
          socket.receive(packet);
        } catch (SocketTimeoutException late) {
          break;
        }
        ByteBuffer answer =
            ByteBuffer.wrap(received, 0, packet.getLength()).order(ByteOrder.LITTLE_ENDIAN);
        if (isAnswer(answer, mine)) {
          if (answer.get(3) == REJECTED) {
            throw new IOException("the server turned a request down, reason " + answer.get(21));
          }
          if (answer.get(3) != kind) {
            throw new IOException("the server answered another question");
          }
          return answer;
        }
      }
    }
    throw new IOException("the server does not answer");
  }

  private boolean isAnswer(ByteBuffer answer, long mine) {
    int length = answer.limit();
    return length >= ANSWER_HEADER
        && answer.getShort(0) == (short) MAGIC
        && answer.get(2) == VERSION
        && answer.getLong(8) == mine
        && (connection == 0 || answer.getInt(4) == connection)
        && answer.getInt(16) == length - ANSWER_HEADER;
  }

  @Override
  public void close() {
    byte[] bye = frame(BYE, number, 0, ByteBuffer.allocate(0));
    try {
      socket.send(new DatagramPacket(bye, bye.length));
    } catch (IOException gone) {
      // The server finds out by itself, later.
    }
    socket.close();
  }
}
