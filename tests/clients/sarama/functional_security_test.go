//go:build functional

package sarama

import (
	"crypto/tls"
	"crypto/x509"
	"os"

	"github.com/xdg-go/scram"
)

// scramLogIn adapts the library that the examples of sarama use.
type scramLogIn struct {
	conversation *scram.ClientConversation
}

func (l *scramLogIn) Begin(user, password, authorization string) error {
	client, err := scram.SHA512.NewClient(user, password, authorization)
	if err == nil {
		l.conversation = client.NewConversation()
	}
	return err
}

func (l *scramLogIn) Step(challenge string) (string, error) { return l.conversation.Step(challenge) }

func (l *scramLogIn) Done() bool { return l.conversation.Done() }

// secured gives the configuration of all functional tests TLS and a log-in, if the variables for them are set.
func secured(config *Config) *Config {
	authority := os.Getenv("SUITE_CA")
	if authority == "" {
		return config
	}
	text, err := os.ReadFile(authority)
	if err != nil {
		panic(err)
	}
	config.Net.TLS.Enable = true
	config.Net.TLS.Config = &tls.Config{RootCAs: x509.NewCertPool()}
	config.Net.TLS.Config.RootCAs.AppendCertsFromPEM(text)
	config.Net.SASL.Enable = true
	config.Net.SASL.Mechanism = SASLTypeSCRAMSHA512
	config.Net.SASL.User = os.Getenv("SUITE_USER")
	config.Net.SASL.Password = os.Getenv("SUITE_PASSWORD")
	config.Net.SASL.SCRAMClientGeneratorFunc = func() SCRAMClient { return &scramLogIn{} }
	return config
}
