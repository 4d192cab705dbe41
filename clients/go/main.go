// Command orders shows a Hourwheel client in Go: it publishes with a delay, cancels, receives,
// acknowledges, and reads the reason of an error. See docs/CLIENT.md, "Clients in other languages".
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	hourwheel "example.com/orders/hourwheel/v1"
)

const (
	topic     = "orders"
	group     = "billing"
	callTime  = 10 * time.Second // longer than any wait below: the node answers before it is over
	waitMs    = 5_000
	leaseMs   = 30_000
	oneMinute = 60_000
)

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: orders HOST:PORT")
	}
	if err := run(os.Args[1]); err != nil {
		log.Fatalf("%s: %v", reason(err), err)
	}
}

func run(address string) error {
	channel, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer channel.Close()
	if err := publishAndCancel(hourwheel.NewProducerServiceClient(channel)); err != nil {
		return err
	}
	consumer := hourwheel.NewConsumerServiceClient(channel)
	if err := receiveAndAck(consumer); err != nil {
		return err
	}
	_, err = receive(consumer, "no-such-topic")
	fmt.Println("refused", reason(err))
	return nil
}

// publishAndCancel schedules two orders, and takes the second one back.
func publishAndCancel(producer hourwheel.ProducerServiceClient) error {
	ctx, done := context.WithTimeout(context.Background(), callTime)
	defer done()
	published, err := producer.Publish(ctx, &hourwheel.PublishRequest{
		Topic: topic,
		Messages: []*hourwheel.OutgoingMessage{
			order("order 17", 200),
			order("order 18", oneMinute),
		},
	})
	if err != nil {
		return err
	}
	for _, message := range published.Messages {
		fmt.Println("published", message.MessageId, "due", message.DueMs)
	}
	paid := published.Messages[1].MessageId
	cancelled, err := producer.Cancel(ctx, &hourwheel.CancelRequest{MessageIds: []string{paid}})
	if err != nil {
		return err
	}
	fmt.Println("cancel", paid, cancelled.Outcomes[0])
	return nil
}

func order(body string, delayMs int64) *hourwheel.OutgoingMessage {
	return &hourwheel.OutgoingMessage{
		Body: []byte(body),
		Due:  &hourwheel.OutgoingMessage_DelayMs{DelayMs: delayMs},
		Meta: &hourwheel.MessageMeta{Tags: []string{"unpaid"}},
	}
}

// receiveAndAck waits for orders that fall due until there is one, and acknowledges what came. A
// message that is not acknowledged within its lease comes again.
func receiveAndAck(consumer hourwheel.ConsumerServiceClient) error {
	var received *hourwheel.ReceiveResponse
	for len(received.GetMessages()) == 0 {
		var err error
		if received, err = receive(consumer, topic); err != nil {
			return err
		}
	}
	ctx, done := context.WithTimeout(context.Background(), callTime)
	defer done()
	for _, message := range received.Messages {
		fmt.Printf("received %s at %d, attempt %d: %s\n",
			message.MessageId, received.ReceiveMs, message.Attempt, message.Body)
		acked, err := consumer.Ack(ctx, &hourwheel.AckRequest{
			Group:    group,
			Receipts: []string{message.Receipt},
		})
		if err != nil {
			return err
		}
		fmt.Println("ack", message.MessageId, acked.Outcomes[0])
	}
	return nil
}

func receive(
	consumer hourwheel.ConsumerServiceClient, topic string,
) (*hourwheel.ReceiveResponse, error) {
	ctx, done := context.WithTimeout(context.Background(), callTime)
	defer done()
	return consumer.Receive(ctx, &hourwheel.ReceiveRequest{
		Group:       group,
		Topic:       topic,
		MaxMessages: 10,
		WaitMs:      waitMs,
		InvisibleMs: leaseMs,
	})
}

// reason gives what a program decides by (docs/ERRORS.md): Hourwheel's reason, or where the call
// did not get as far as a node, gRPC's own code.
func reason(err error) string {
	for _, detail := range status.Convert(err).Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok && info.Domain == "hourwheel" {
			return info.Reason
		}
	}
	return status.Code(err).String()
}
