import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/**
 * RocketMQ's Java client, steered by rocketmq_peer.py over one loopback connection.
 *
 * <p>Usage: Driver NAME_SERVER BROKER PORT. A command is one byte; numbers are big-endian.
 *
 * <pre>
 * P  u32 count, then (i64 due_ms, u32 size, body) each -> u32 size, text of an error or nothing;
 *    without an error: u32 size, recall handles, one a line
 * C  u32 size, recall handles, one a line -> u32 how many were accepted
 * S  -> from now on, for all that has come: (i64 microseconds, u32 count, (u32 size, body) each)
 * </pre>
 */
public final class Driver {
  private static final String TOPIC = "delayed";
  private static final int QUEUES = 4;
  private static final int CANCEL_THREADS = 64;
  private static final int TRIES = 5;

  private final DataInputStream in;
  private final DataOutputStream out;
  private final DefaultMQProducer producer = new DefaultMQProducer("bench-producer");
  private final DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("bench");
  private final ExecutorService threads = Executors.newFixedThreadPool(CANCEL_THREADS);
  private final Object outLock = new Object();
  private final ArrayDeque<byte[]> arrived = new ArrayDeque<>();
  private boolean isStarted = false;

  public static void main(String[] words) throws Exception {
    try (ServerSocket server =
        new ServerSocket(Integer.parseInt(words[2]), 1, InetAddress.getLoopbackAddress())) {
      createTopic(words[0], words[1]);
      try (Socket socket = server.accept()) {
        socket.setTcpNoDelay(true);
        new Driver(words[0], socket).run();
      }
    }
    System.exit(0);
  }

  private static void createTopic(String nameServer, String broker) throws Exception {
    DefaultMQAdminExt admin = new DefaultMQAdminExt(5_000);
    admin.setNamesrvAddr(nameServer);
    admin.start();
    TopicConfig topic = new TopicConfig(TOPIC, QUEUES, QUEUES, 6);
    topic.getAttributes().put("+message.type", "DELAY");
    for (int left = 200; ; left--) {
      try {
        admin.createAndUpdateTopicConfig(broker, topic);
        if (!admin.examineTopicRouteInfo(TOPIC).getBrokerDatas().isEmpty()) {
          break;
        }
      } catch (Exception error) {
        if (left == 0) {
          throw error;
        }
      }
      Thread.sleep(100);
    }
    admin.shutdown();
  }

  private Driver(String nameServer, Socket socket) throws Exception {
    in = new DataInputStream(new BufferedInputStream(socket.getInputStream(), 1 << 18));
    out = new DataOutputStream(new BufferedOutputStream(socket.getOutputStream(), 1 << 18));
    producer.setNamesrvAddr(nameServer);
    producer.setSendMsgTimeout(30_000);
    producer.start();
    consumer.setNamesrvAddr(nameServer);
    consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
    consumer.setPullBatchSize(1_000);
    consumer.setConsumeMessageBatchMaxSize(1_000);
    consumer.setConsumeThreadMin(4);
    consumer.setConsumeThreadMax(4);
    consumer.setPullThresholdForQueue(20_000);
    consumer.setPullThresholdSizeForQueue(200);
    consumer.subscribe(TOPIC, "*");
    consumer.registerMessageListener(
        (MessageListenerConcurrently)
            (messages, context) -> {
              receive(messages);
              return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
    consumer.start();
    out.writeInt(0);
    out.flush();
  }

  private void run() throws Exception {
    try {
      while (true) {
        switch (in.readByte()) {
          case 'P' -> publish();
          case 'C' -> cancel();
          case 'S' -> start();
          default -> throw new IOException("no such command");
        }
      }
    } catch (EOFException end) {
      consumer.shutdown();
      producer.shutdown();
    }
  }

  private void publish() throws Exception {
    int count = in.readInt();
    List<Message> messages = new ArrayList<>(count);
    for (int at = 0; at < count; at++) {
      long dueMs = in.readLong();
      Message message = new Message(TOPIC, in.readNBytes(in.readInt()));
      message.setDeliverTimeMs(dueMs);
      messages.add(message);
    }
    String[] handles = new String[count];
    CountDownLatch left = new CountDownLatch(count);
    AtomicReference<String> trouble = new AtomicReference<>("");
    // It refuses lists of delayed messages: each goes by itself, all at one time.
    for (int at = 0; at < count; at++) {
      send(messages.get(at), at, handles, left, trouble, TRIES);
    }
    if (!left.await(90, TimeUnit.SECONDS)) {
      trouble.set("no answer in 90 s");
    }
    synchronized (outLock) {
      writeText(trouble.get());
      if (trouble.get().isEmpty()) {
        writeText(String.join("\n", handles));
      }
      out.flush();
    }
  }

  private void send(
      Message message,
      int at,
      String[] handles,
      CountDownLatch left,
      AtomicReference<String> trouble,
      int tries)
      throws Exception {
    producer.send(
        message,
        new SendCallback() {
          @Override
          public void onSuccess(SendResult result) {
            handles[at] = String.valueOf(result.getRecallHandle());
            if (result.getSendStatus() != SendStatus.SEND_OK) {
              trouble.set(String.valueOf(result.getSendStatus()));
            }
            left.countDown();
          }

          @Override
          public void onException(Throwable error) {
            try {
              if (tries > 1 && String.valueOf(error).contains("busy")) { // its flow control
                send(message, at, handles, left, trouble, tries - 1);
                return;
              }
            } catch (Exception again) {
              error.addSuppressed(again);
            }
            trouble.set(String.valueOf(error));
            left.countDown();
          }
        });
  }

  private void cancel() throws Exception {
    String handles = new String(in.readNBytes(in.readInt()), StandardCharsets.US_ASCII);
    List<Future<Boolean>> calls = new ArrayList<>();
    for (String handle : handles.split("\n")) {
      calls.add(threads.submit(() -> producer.recallMessage(TOPIC, handle) != null));
    }
    int accepted = 0;
    for (Future<Boolean> call : calls) {
      accepted += call.get() ? 1 : 0;
    }
    synchronized (outLock) {
      out.writeInt(accepted);
      out.flush();
    }
  }

  private void start() throws IOException {
    synchronized (outLock) {
      isStarted = true;
      for (byte[] frame : arrived) {
        out.write(frame);
      }
      arrived.clear();
      out.flush();
    }
  }

  private void receive(List<MessageExt> messages) {
    Instant now = Instant.now();
    try {
      ByteArrayOutputStream bytes = new ByteArrayOutputStream();
      DataOutputStream frame = new DataOutputStream(bytes);
      frame.writeLong(now.getEpochSecond() * 1_000_000L + now.getNano() / 1_000);
      frame.writeInt(messages.size());
      for (MessageExt message : messages) {
        frame.writeInt(message.getBody().length);
        frame.write(message.getBody());
      }
      synchronized (outLock) {
        if (isStarted) {
          out.write(bytes.toByteArray());
          out.flush();
        } else {
          arrived.add(bytes.toByteArray());
        }
      }
    } catch (IOException gone) {
      Thread.currentThread().interrupt();
    }
  }

  private void writeText(String text) throws IOException {
    byte[] bytes = text.getBytes(StandardCharsets.UTF_8);
    out.writeInt(bytes.length);
    out.write(bytes);
  }
}
