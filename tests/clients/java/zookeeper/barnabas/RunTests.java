package barnabas;

import static org.junit.platform.engine.discovery.DiscoverySelectors.selectClass;

import java.io.IOException;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Optional;
import java.util.Set;
import org.junit.platform.engine.DiscoverySelector;
import org.junit.platform.engine.FilterResult;
import org.junit.platform.engine.TestDescriptor;
import org.junit.platform.engine.TestExecutionResult;
import org.junit.platform.engine.support.descriptor.MethodSource;
import org.junit.platform.launcher.PostDiscoveryFilter;
import org.junit.platform.launcher.TestExecutionListener;
import org.junit.platform.launcher.TestIdentifier;
import org.junit.platform.launcher.core.LauncherDiscoveryRequestBuilder;
import org.junit.platform.launcher.core.LauncherFactory;

/**
 * Runs the JUnit tests of the classes in the arguments, but those of excluded methods (-CLASS.METHOD), or only those of
 * chosen ones (+CLASS.METHOD); classes in both have their simple names. A line in the file of the system property
 * `barnabas.results` has outcome, name and detail of each test, with tabs between them.
 */
public final class RunTests implements TestExecutionListener {
    private static final String TIMEOUT = "junit.jupiter.execution.timeout.testable.method.default";
    private final PrintStream results;

    private RunTests(PrintStream results) {
        this.results = results;
    }

    public static void main(String[] arguments) throws IOException {
        Set<String> excluded = new HashSet<>();
        Set<String> chosen = new HashSet<>();
        List<DiscoverySelector> classes = new ArrayList<>();
        for (String argument : arguments) {
            switch (argument.charAt(0)) {
                case '-' -> excluded.add(argument.substring(1));
                case '+' -> chosen.add(argument.substring(1));
                default -> classes.add(selectClass(argument));
            }
        }
        PostDiscoveryFilter filter = test -> {
            String name = methodOf(test);
            boolean runs = name == null || !excluded.contains(name) && (chosen.isEmpty() || chosen.contains(name));
            return FilterResult.includedIf(runs);
        };
        var request = LauncherDiscoveryRequestBuilder.request()
            .selectors(classes)
            .filters(filter)
            .configurationParameter(TIMEOUT, "240 s")
            .build();
        try (PrintStream results = new PrintStream(System.getProperty("barnabas.results"), StandardCharsets.UTF_8)) {
            LauncherFactory.create().execute(request, new RunTests(results));
        }
        // Threads of clients and brokers that a test has left do not keep the process.
        Runtime.getRuntime().halt(0);
    }

    private static String methodOf(TestDescriptor test) {
        return test.getSource().map(source -> methodOf(source)).orElse(null);
    }

    private static String methodOf(Object source) {
        if (!(source instanceof MethodSource)) {
            return null;
        }
        MethodSource method = (MethodSource) source;
        return method.getClassName().replaceFirst(".*\\.", "") + "." + method.getMethodName();
    }

    @Override
    public void executionSkipped(TestIdentifier test, String reason) {
        tell("skipped", test, reason);
    }

    @Override
    public void executionFinished(TestIdentifier test, TestExecutionResult result) {
        switch (result.getStatus()) {
            case SUCCESSFUL -> {
                if (test.isTest()) {
                    tell("passed", test, "");
                }
            }
            case ABORTED -> tell("skipped", test, detailOf(result));
            case FAILED -> tell("failed", test, detailOf(result));
        }
    }

    private static String detailOf(TestExecutionResult result) {
        Optional<Throwable> thrown = result.getThrowable();
        if (thrown.isEmpty()) {
            return "";
        }
        StringBuilder detail = new StringBuilder(thrown.get().toString());
        for (StackTraceElement element : thrown.get().getStackTrace()) {
            if (element.getClassName().contains("Test")) {
                detail.append(" at ").append(element);
                break;
            }
        }
        return detail.toString();
    }

    private void tell(String outcome, TestIdentifier test, String detail) {
        String name = test.getSource().map(source -> methodOf(source)).orElse(test.getDisplayName());
        if (test.getUniqueId().contains("test-template-invocation")) {
            name += " " + test.getDisplayName().replaceFirst("^\\w+\\([^)]*\\)\\.?", "");
        }
        results.println(outcome + "\t" + name + "\t" + detail.replaceAll("\\s+", " "));
        results.flush();
    }
}
