package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
	xdg "github.com/xdg-go/scram"
)

// security is what a client needs for a protected listener. Files are PEM.
type security struct {
	Authority   string `json:"authority"`
	Certificate string `json:"certificate"`
	Mechanism   string `json:"mechanism"`
	Username    string `json:"username"`
	Password    string `json:"password"`
	Token       string `json:"token"`
}

func (s security) tls() (*tls.Config, error) {
	text, err := os.ReadFile(s.Authority)
	if err != nil {
		return nil, err
	}
	config := &tls.Config{RootCAs: x509.NewCertPool()}
	config.RootCAs.AppendCertsFromPEM(text)
	if s.Certificate != "" {
		own, err := tls.LoadX509KeyPair(s.Certificate, s.Certificate)
		if err != nil {
			return nil, err
		}
		config.Certificates = []tls.Certificate{own}
	}
	return config, nil
}

func (s security) franz() ([]kgo.Opt, error) {
	if s.Authority == "" {
		return nil, nil
	}
	config, err := s.tls()
	if err != nil {
		return nil, err
	}
	options := []kgo.Opt{kgo.DialTLSConfig(config)}
	var mechanism sasl.Mechanism
	switch s.Mechanism {
	case "":
		return options, nil
	case "PLAIN":
		mechanism = plain.Auth{User: s.Username, Pass: s.Password}.AsMechanism()
	case "SCRAM-SHA-256":
		mechanism = scram.Auth{User: s.Username, Pass: s.Password}.AsSha256Mechanism()
	case "SCRAM-SHA-512":
		mechanism = scram.Auth{User: s.Username, Pass: s.Password}.AsSha512Mechanism()
	case "OAUTHBEARER":
		mechanism = oauth.Auth{Token: s.Token}.AsMechanism()
	default:
		return nil, fmt.Errorf("unknown mechanism %q", s.Mechanism)
	}
	return append(options, kgo.SASL(mechanism)), nil
}

func (s security) sarama(config *sarama.Config) error {
	if s.Authority == "" {
		return nil
	}
	made, err := s.tls()
	if err != nil {
		return err
	}
	config.Net.TLS.Enable = true
	config.Net.TLS.Config = made
	if s.Mechanism == "" {
		return nil
	}
	config.Net.SASL.Enable = true
	config.Net.SASL.Mechanism = sarama.SASLMechanism(s.Mechanism)
	config.Net.SASL.User, config.Net.SASL.Password = s.Username, s.Password
	switch s.Mechanism {
	case "SCRAM-SHA-256":
		config.Net.SASL.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient { return &scramClient{hash: xdg.SHA256} }
	case "SCRAM-SHA-512":
		config.Net.SASL.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient { return &scramClient{hash: xdg.SHA512} }
	case "OAUTHBEARER":
		config.Net.SASL.TokenProvider = token(s.Token)
	}
	return nil
}

// scramClient is the adapter that sarama documents.
type scramClient struct {
	hash         xdg.HashGeneratorFcn
	conversation *xdg.ClientConversation
}

func (c *scramClient) Begin(user, password, authzID string) error {
	client, err := c.hash.NewClient(user, password, authzID)
	if err != nil {
		return err
	}
	c.conversation = client.NewConversation()
	return nil
}

func (c *scramClient) Step(challenge string) (string, error) { return c.conversation.Step(challenge) }

func (c *scramClient) Done() bool { return c.conversation.Done() }

type token string

func (t token) Token() (*sarama.AccessToken, error) { return &sarama.AccessToken{Token: string(t)}, nil }
